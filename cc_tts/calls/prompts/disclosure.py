"""The disclosure of one call: words that tell the caller that a machine speaks, said once before its first synthetic words.

It is an utterance of its own. No key and no speech interrupts it, and what it precedes is not heard before it was heard: if
it fails, the synthetic words behind it fail with it. Audio that a client sends, recorded announcements and tones are not
words of ours, and need none. Runs on: the event loop.
"""

from collections.abc import Collection

from cc_tts import logs
from cc_tts.calls.call_info import CallInfo
from cc_tts.calls.events import types
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance, UtteranceError
from cc_tts.errors import DisclosureFailed
from cc_tts.speech.prompt import Content, Prompt, ReadyContent, texts_of

log = logs.get(__name__)


class Disclosing:
    """Says the disclosure of a call, and notes when it was heard."""

    def __init__(self, call: CallInfo) -> None:
        self._call = call
        self.utterance: Utterance | None = None
        """The utterance of the disclosure."""

    def before(self, content: Content) -> Prompt | None:
        """Return the prompt that must be heard before this content; ``None`` if there is none, or it has been said."""
        call = self._call
        if call.disclosure is None or call.disclosed_at_s is not None or self.utterance is not None:
            return None
        if not is_synthetic(content):
            return None
        return Prompt(content=call.disclosure.content, barge_in_dtmf=False, barge_in_speech=False, unattended=True)

    def holds_back(self, on_line: Collection[Utterance]) -> bool:
        """Whether nothing more may be played yet, since the disclosure has not certainly been heard."""
        said = self.utterance
        if said is None or said not in on_line:
            return False
        return said.first_speech_ns is None or said.error is not None or said.discard_cause is not None

    def check_heard(self, utterance: Utterance) -> None:
        if utterance is self.utterance and utterance.first_speech_ns is None and utterance.error is None:
            utterance.error = UtteranceError(DisclosureFailed.code, "the disclosure had no sound")

    def complete(self, utterance: Utterance) -> bool:
        """Take note of a complete utterance; return whether the synthetic words behind it must not be heard."""
        if utterance is not self.utterance:
            return False
        self.utterance = None
        cause, call = utterance.completion_cause, self._call
        if cause is CompletionCause.NORMAL:
            call.disclosed_at_s = call.services.clock.wall_s()
            call.services.metrics.disclosures.labels(result="heard").inc()
            call.publish(types.CallDisclosed(utterance_id=utterance.id, played_ms=round(utterance.played_ms, 1)))
            return False
        if cause is CompletionCause.ERROR:
            error = DisclosureFailed.code if utterance.error is None else utterance.error.code
            call.services.metrics.disclosures.labels(result="failed").inc()
            log.error("disclosure_failed", call_id=call.id, utterance_id=utterance.id, code=error)
            call.publish(types.CallDisclosureFailed(utterance_id=utterance.id, error=error))
        return cause is not CompletionCause.CALL_ENDED


def is_synthetic(content: Content) -> bool:
    """Whether the content is words that one of our voices says."""
    return bool(content.text if isinstance(content, ReadyContent) else texts_of(content))
