"""A UA process with one leg and no clock: it plays as many milliseconds as it is told to."""

import contextlib
from dataclasses import dataclass

from cc_tts.audio import AudioFormat
from cc_tts.calls.prompts.player import PromptPlayer
from cc_tts.errors import UserAgentUnavailable
from cc_tts.media.playout_events import PlayoutFinished, PlayoutProgress
from cc_tts.ua import messages

RATE_HZ = 8000


@dataclass(slots=True)
class OnLine:
    id: str
    pcm: bytes = b""
    played_ms: float = 0.0
    is_finished: bool = False
    is_cut: bool = False


class FakeLine:
    """Utterances in a row. ``is_down``: the UA process is gone."""

    def __init__(self) -> None:
        self.listener: PromptPlayer | None = None
        self.queue: list[OnLine] = []
        self.begun: list[str] = []
        self.cuts: list[str] = []
        self.heard: list[str] = []
        self.most_buffered_ms = 0.0
        self.is_down = False
        self.now_ns = 0
        self._format = AudioFormat(RATE_HZ)

    def send(self, message: messages.CallCommand, payload: bytes = b"") -> None:
        if self.is_down:
            raise UserAgentUnavailable
        match message:
            case messages.BeginUtterance(utterance_id=utterance_id):
                self._begin(utterance_id)
            case messages.Audio(utterance_id=utterance_id):
                self._audio(utterance_id, payload)
            case messages.FinishUtterance(utterance_id=utterance_id):
                self._finish(utterance_id)
            case messages.CutUtterance(utterance_id=str(utterance_id)):
                self._cut(utterance_id)
            case _:
                raise AssertionError(message)

    def tell(self, message: messages.CallCommand, payload: bytes = b"") -> None:
        with contextlib.suppress(UserAgentUnavailable):
            self.send(message, payload)

    def _begin(self, utterance_id: str) -> None:
        self.begun.append(utterance_id)
        self.queue.append(OnLine(utterance_id))

    def _audio(self, utterance_id: str, pcm: bytes) -> None:
        for each in self.queue:
            if each.id == utterance_id:
                assert not each.is_finished, "audio after finish"
                each.pcm += pcm
        self.most_buffered_ms = max(self.most_buffered_ms, self.buffered_ms)

    def _finish(self, utterance_id: str) -> None:
        for each in self.queue:
            if each.id == utterance_id:
                assert not each.is_finished, "finished twice"
                each.is_finished = True

    def _cut(self, utterance_id: str) -> None:
        self.cuts.append(utterance_id)
        for each in self.queue:
            if each.id == utterance_id:
                each.is_cut = True

    @property
    def buffered_ms(self) -> float:
        return sum(self._format.ms_for_bytes(len(each.pcm)) - each.played_ms for each in self.queue if not each.is_cut)

    def cut_by_itself(self) -> None:
        """Drop everything, as the UA process does when a buffer would overflow."""
        for each in self.queue:
            each.is_cut = True

    def play(self, ms: float) -> None:
        """Let time pass on the line and report what happened."""
        assert self.listener is not None
        self.now_ns += round(ms * 1e6)
        for each in [each for each in self.queue if each.is_cut]:
            self._end(each, cut=True)
        while self.queue:
            head = self.queue[0]
            step = min(ms, self._format.ms_for_bytes(len(head.pcm)) - head.played_ms)
            if step > 0:
                if not head.played_ms:
                    self.heard.append(head.id)
                head.played_ms += step
                ms -= step
                self.listener.on_playout(PlayoutProgress(head.id, self.now_ns, head.played_ms))
            if not head.is_finished or head.played_ms < self._format.ms_for_bytes(len(head.pcm)):
                return
            self._end(head, cut=False)

    def _end(self, each: OnLine, *, cut: bool) -> None:
        assert self.listener is not None
        self.queue.remove(each)
        self.listener.on_playout(PlayoutFinished(each.id, self.now_ns, "cut" if cut else "drained", each.played_ms, 0))


class FakeClock:
    def __init__(self) -> None:
        self.at_ns = 1_000_000_000
        self.set_by_s = 0.0
        """How far the time of day was set, forward or back."""

    def now_ns(self) -> int:
        return self.at_ns

    def wall_s(self) -> float:
        return self.at_ns / 1e9 + self.set_by_s

    def advance(self, ms: float) -> None:
        self.at_ns += round(ms * 1e6)
