"""The VAD process as a call sees it: what is listened to is written down, edges are made up by the test."""

from collections.abc import Callable

from cc_tts.vad.answering.settings import Amd, Finding
from cc_tts.vad.client import OnFinding, SpeechNotHeard
from cc_tts.vad.speech import Edge, Listening, SpeechConfirmed, SpeechStarted, SpeechStopped


class FakeVad:
    """``is_installed`` False: nothing hears speech. ``audio``: call, instant and direction of what was pushed."""

    def __init__(self) -> None:
        self.is_installed = True
        self.legs: dict[str, tuple[Listening, Callable[[Edge], None]]] = {}
        self.classified: dict[str, tuple[Amd, bool, OnFinding]] = {}
        self.audio: list[tuple[str, int, bool]] = []

    def check(self) -> None:
        if not self.is_installed:
            raise SpeechNotHeard

    def listen(self, leg: str, listening: Listening, on_edge: Callable[[Edge], None]) -> None:
        self.legs[leg] = (listening, on_edge)

    async def ready(self) -> None:
        self.check()

    def classify(self, leg: str, settings: Amd, origin_ns: int, *, is_answered: bool, on_finding: OnFinding) -> None:
        assert origin_ns > 0
        self.classified[leg] = (settings, is_answered, on_finding)

    def declassify(self, leg: str) -> None:
        del self.classified[leg]

    def found(self, call_id: str, finding: Finding | None) -> None:
        """Something was found about who answered; ``None``: the process died."""
        self.classified[f"amd:{call_id}"][2](finding)

    def push(self, leg: str, at_ns: int, _pcm: bytes, *, is_sent: bool) -> None:
        self.audio.append((leg, at_ns, is_sent))

    def ignore(self, leg: str) -> None:
        self.legs.pop(leg, None)

    def listening(self, leg: str) -> Listening:
        return self.legs[leg][0]

    def started(self, leg: str, onset_ns: int) -> None:
        self.legs[leg][1](SpeechStarted(onset_ns))

    def confirmed(self, leg: str, onset_ns: int) -> None:
        self.legs[leg][1](SpeechConfirmed(onset_ns))

    def stopped(self, leg: str, onset_ns: int, end_ns: int) -> None:
        self.legs[leg][1](SpeechStopped(onset_ns, end_ns))
