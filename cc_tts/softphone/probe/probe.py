"""One probe: combines the call, the hearing and the caller. Runs on: the SIP thread."""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cc_tts import wav_file
from cc_tts.audio import BYTES_PER_SAMPLE
from cc_tts.callreport.picture import CallPicture
from cc_tts.clock import NS_PER_MS, NS_PER_S, Clock, ms_between
from cc_tts.errors import ConfigError
from cc_tts.softphone.call import SoftphoneCall
from cc_tts.softphone.probe.caller import Caller
from cc_tts.softphone.probe.cuts import abrupt_end, holes, levels_of
from cc_tts.softphone.probe.ear import PAUSE_MS, Ear
from cc_tts.softphone.probe.picture import picture_of_probe
from cc_tts.softphone.probe.plan import CallerWords, ProbePlan
from cc_tts.softphone.probe.report import CutWord, DetectorReport, ProbeReport, probe_report
from cc_tts.softphone.probe.turns import Act, Stretch, turns_of
from cc_tts.softphone.report import SoftphoneReport
from cc_tts.softphone.rtp.packets import RATE_HZ
from cc_tts.softphone.rtp.receiver import Packet
from cc_tts.vad.detector import VoiceDetector
from cc_tts.vad.silero import SileroModel, find_model

AFTER_MS: Final = 1000.0
"""Speech that ends this soon after the caller spoke or pressed a key counts as interrupted (unmeasured)."""


class Probe:
    """A probe of one call; raises ``ConfigError`` without a model that detects speech."""

    def __init__(self, plan: ProbePlan, words: CallerWords, clock: Clock) -> None:
        model = SileroModel(find_model(), RATE_HZ)
        self._plan, self._words, self._clock = plan, words, clock
        self._errors = [error_of(model, pcm) for pcm in (words.sentence, words.interruption)]
        self._ear = Ear(VoiceDetector(model, RATE_HZ))
        self._packets: deque[Packet] = deque()  # the RTP thread adds to it
        self._has_said_all = False

    def begin(self, call: SoftphoneCall) -> None:
        """Begin with the call that was dialled; all else follows this."""
        self._call = call
        self._caller = Caller(self._plan, self._words, call=call, ear=self._ear, clock=self._clock)
        self._script = self._caller.script()
        call.listen(self._packets.append)

    def work(self) -> None:
        """Process the audio that has arrived, and take the next step of the conversation."""
        call = self._call
        now_ns = self._clock.now_ns()
        self._hear()
        self._ear.pass_time(now_ns)
        if call.facts.is_connected and not call.facts.ended_ns and next(self._script, True):
            self._has_said_all = True
            call.hang_up()

    # the report -----------------------------------------------------------------------------------------------------

    def report(self, call: SoftphoneReport) -> ProbeReport:
        """Figures of the probe. Call it once, after the end."""
        self._hear()
        self._ear.finish()
        origin_ns = call.answered_at_ns or call.invite_at_ns
        agent = [
            Stretch(ms_between(origin_ns, each.begin_ns), ms_between(origin_ns, each.end_ns or call.ended_at_ns))
            for each in self._ear.speech
        ]
        acts = self._acts(call)
        end_ms = ms_between(origin_ns, call.ended_at_ns)
        return probe_report(
            call,
            plan=self._plan,
            agent=agent,
            turns=turns_of(acts, agent, end_ms=end_ms, pause_ms=PAUSE_MS),
            cuts=[*self._cuts(acts, agent, origin_ns, end_ms if call.ending.by == "us" else None)],
            is_over=self._has_said_all,
            expired=self._caller.expired,
            remarks=self._caller.remarks,
            detector=DetectorReport(
                begin_error_ms=tuple(begin for begin, _ in self._errors),
                end_error_ms=tuple(end for _, end in self._errors),
            ),
        )

    def picture(self, report: ProbeReport, heard: Path | None, folder: Path) -> CallPicture:
        """The picture of the report; what the caller said goes to a file in ``folder``. Raises ``OSError``."""
        said, pcm, origin_ns = folder / "said.wav", bytearray(), report.call.answered_at_ns or report.call.invite_at_ns
        for each, words in zip(self._call.said, self._caller.spoken, strict=False):
            begin = (each.begin_ns - origin_ns) * RATE_HZ // NS_PER_S * BYTES_PER_SAMPLE
            pcm += bytes(max(0, begin - len(pcm))) + words
        wav_file.write(said, bytes(pcm), rate_hz=RATE_HZ, is_private=True)
        return picture_of_probe(report, heard=heard, said=said if pcm else None)

    def _hear(self) -> None:
        while self._packets:
            self._ear.hear(self._packets.popleft())

    def _acts(self, call: SoftphoneReport) -> list[Act]:
        """Return all that the caller did, in order; the report already has the instants of keys as ms from the answer."""
        origin_ns = call.answered_at_ns or call.invite_at_ns
        spoken = [
            Act(
                what="speech",
                begin_ms=ms_between(origin_ns, each.begin_ns),
                end_ms=ms_between(origin_ns, each.end_ns or call.ended_at_ns),
            )
            for each in self._call.said
        ]
        pressed = [Act(what="key", begin_ms=key.at_ms, end_ms=key.at_ms) for key in call.dtmf_sent]
        return sorted((*spoken, *pressed), key=lambda act: act.begin_ms)

    def _cuts(self, acts: list[Act], agent: list[Stretch], origin_ns: int, left_ms: float | None) -> Iterator[CutWord]:
        """Return the words that were cut though nobody interrupted them; ``left_ms``: when the caller hung up, if that ended
        the call.
        """
        pcm = bytes(self._ear.pcm)
        levels = levels_of(pcm)
        for gap in holes(levels, self._ear.gaps):
            yield CutWord(ms_between(origin_ns, self._ear.at_ns(gap.begin)), gap.why, gap.length * 1000 / RATE_HZ)
        for speech in agent:
            is_interrupted = any(act.begin_ms <= speech.end_ms <= act.end_ms + AFTER_MS for act in acts)
            if is_interrupted or (left_ms is not None and left_ms - speech.end_ms < PAUSE_MS):
                continue
            begin, end = (
                max(0, self._ear.sample_at(origin_ns + round(at_ms * NS_PER_MS)))
                for at_ms in (speech.begin_ms, speech.end_ms)
            )
            if (sample := abrupt_end(pcm, levels, begin, end)) is not None:
                yield CutWord(ms_between(origin_ns, self._ear.at_ns(sample)), "abrupt", 0.0)


def error_of(model: SileroModel, pcm: bytes) -> tuple[float, float]:
    """Return how far the found begin and end of speech are from the known ones, ms; above 0 if found later."""
    ear = Ear(VoiceDetector(model, RATE_HZ))
    begin_ns = NS_PER_S
    silence = bytes(PAUSE_MS * RATE_HZ // 1000 * BYTES_PER_SAMPLE)
    ear.hear(Packet(0, 0, 0, begin_ns - PAUSE_MS * NS_PER_MS, silence + pcm))
    ear.finish()
    if not ear.speech:
        raise ConfigError("the caller's words are not heard as speech; give others")
    end_ns = begin_ns + len(pcm) // BYTES_PER_SAMPLE * NS_PER_S // RATE_HZ
    found_ns = ear.speech[-1].end_ns
    assert found_ns is not None
    return ms_between(begin_ns, ear.speech[0].begin_ns), ms_between(end_ns, found_ns)
