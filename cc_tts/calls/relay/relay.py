"""One relay: an application that is written for ConversationRelay talks with the far side of a call.

::

    application ─▸ take ─▸ TextStream, Call.speak, Call.send_dtmf
    keys, interruptions ─▸ outbox of the connection, or kept while there is none ─▸ application

Who makes the connections is no matter of this: they tell of them by :meth:`Relay.connected` and what follows it. What was
sent before the end of the conversation is heard to its end, and then follows what the relay says.

Runs on: the event loop.
"""

import asyncio
import re
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final, assert_never

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from cc_tts import logs
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.ending import RELAY_FAILED
from cc_tts.calls.events.outbox import Outbox
from cc_tts.calls.events.types import CallRelayEnded, CallRelayStarted
from cc_tts.calls.follower import CallView, Follower
from cc_tts.calls.input.text import DEFAULTS, TextStream
from cc_tts.calls.input.text_messages import StreamMessage, StreamSpeakRefused, TokensResult
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance
from cc_tts.calls.relay import messages
from cc_tts.calls.relay.request import FAILURES, RelayCause, RelayRequest
from cc_tts.calls.timer import CallTimer
from cc_tts.config.sections.relay import Interruptible
from cc_tts.egress.hosts import usable_url
from cc_tts.errors import CcTtsError, FieldError, Unprocessable
from cc_tts.speech.prompt import FOREVER, Content, Prompt, TextContent, UrlContent
from cc_tts.ua.sip.message import uri_of
from cc_tts.vad.client import SpeechNotHeard

MAX_KEPT: Final = 500
"""The most messages that wait while there is no connection: as many as Twilio keeps (changelog of 28 October 2026)."""
ACCOUNT_SID: Final = "AC00000000000000000000000000000000"
"""There are no accounts here; applications want the field."""
PAUSE_S: Final = 0.5
"""The length of a ``w`` among digits, as Twilio defines it."""
DIGIT_S: Final = 0.26
"""The approximate length of a digit and the pause behind it; unmeasured."""
MAX_LATER_DIGITS: Final = 100
"""The most groups of keys between pauses that may wait; unmeasured."""
_NUMBER: Final = re.compile(r"sips?:(\+?[0-9]{2,20})@")
_WITH_TEXT: Final = "x-tts-"
"""The prefixes of headers that hold text to be spoken, which applications do not get."""

log = logs.get(__name__)


class Relay(Follower):
    """``resumed``: another server began it, so that the caller has heard the greeting.

    Raises:
        WrongState, CapacityExceeded: as :class:`cc_tts.calls.input.text.TextStream`.
        SpeechNotHeard: speech alone is to interrupt, and nothing here hears it.
    """

    def __init__(self, call: Call, request: RelayRequest, *, resumed: bool = False) -> None:
        self.request = request
        self.call = call
        self._hears = self._check_hearing()
        self._text = TextStream(call, send=self._note, on_call_ended=lambda: None, has_words=False)
        call.followers.join(self)
        call.relay_request = replace(request, welcome_greeting="")
        self._loop = asyncio.get_running_loop()
        self._outbox: Outbox[messages.ToApplication] | None = None
        self._kept: deque[messages.ToApplication] = deque()
        self._language = request.language
        self._own: dict[str, bool] = {}
        """The ids of the application's utterances that are not complete, and whether the next answer cuts them off."""
        self._held_keys: list[str] = []
        """Keys that are sent to the application once it is known what they have interrupted."""
        self._silence = CallTimer(call.id)
        self._later_digits: list[asyncio.TimerHandle] = []
        self._digits_until_s = 0.0
        """When the keys with pauses that are being sent will be done, by the loop's clock."""
        self.was_connected = resumed
        """Whether an application has ever accepted the call."""
        self._was_interrupted = False
        self._ending: tuple[RelayCause, str] | None = None
        """Why the relay ends once the caller has heard everything, and the application's data for the next handler of the
        call.
        """
        self.is_over = False

    # --- connections -------------------------------------------------------------------------------------------------

    @property
    def wants_connection(self) -> bool:
        """Whether the relay still needs a connection."""
        return not self.is_over and self._ending is None

    def connected(self, outbox: Outbox[messages.ToApplication]) -> None:
        """The application has accepted a connection, which sends the messages in ``outbox``."""
        self._outbox = outbox
        outbox.put(self._setup())
        while self._kept:
            outbox.put(self._kept.popleft())
        if not self.was_connected:
            self.was_connected = True
            self.call.publish(CallRelayStarted(relay_id=self.request.id, client_state=_state_of(self.request)))
            self._begin()

    def disconnected(self) -> None:
        """The connection is gone; messages that it did not send wait for the next one."""
        outbox, self._outbox = self._outbox, None
        while outbox is not None and outbox.has_queued:
            self._keep(outbox.take())
        self._text.end()

    def take(self, message: messages.Message) -> None:
        """Carry out a message of the application; raises the errors of the command on the call."""
        if not self.wants_connection:
            return
        match message:
            case messages.Text():
                self._say(message)
            case messages.Play():
                self._play(message)
            case messages.SendDigits(digits=digits):
                self._send_digits(digits.lower())
            case messages.Language(tts_language=language):
                self._language = self._language if language is None else language
            case messages.End(handoff_data=handoff_data):
                self.conclude("completed", handoff_data)
            case _:
                assert_never(message)

    def refuse(self, error: CcTtsError) -> None:
        """Tell the application that its message could not be carried out."""
        self._send(messages.Error(description=f"{error.title}: {error.detail}" if error.detail else error.title))

    # --- its end -----------------------------------------------------------------------------------------------------

    def conclude(self, cause: RelayCause, handoff_data: str = "") -> None:
        """The application has finished: end the relay once the caller has heard everything."""
        if not self.wants_connection:
            return
        self._ending = cause, handoff_data
        self._text.end()
        if self._outbox is not None:
            self._outbox.close()
        for utterance in self._live():
            if utterance.prompt.repeat > 1:  # music, for example
                self.call.player.discard(utterance, CompletionCause.CANCELLED, by="stop")
        self._finish_if_heard()

    def stop(self) -> None:
        """End the relay for a client that takes over the call; words that were not heard are dropped."""
        for utterance in self._live():
            self.call.player.discard(utterance, CompletionCause.CANCELLED, by="stop")
        self._finish("stopped")

    def _finish_if_heard(self) -> None:
        if self._ending is not None and not self._own:
            self._finish(*self._ending)

    def _finish(self, cause: RelayCause, handoff_data: str = "") -> None:
        """End the relay: publish its last event, and do what follows it."""
        if self.is_over:
            return
        self.is_over, call = True, self.call
        self._silence.cancel()
        for each in self._later_digits:
            each.cancel()
        self._text.close()
        call.followers.leave(self)
        call.relay_request = None
        if self._outbox is not None:
            self._outbox.close()
        tell_end(call, self.request, cause, handoff_data)
        if cause not in ("stopped", "call_ended"):
            go_on(call, self.request, cause)

    # --- what happens on the call ------------------------------------------------------------------------------------

    def on_key(self, digit: str, duration_ms: int) -> None:  # noqa: ARG002 - applications do not ask for it
        if not self.request.dtmf_detection or digit == "x" or not self.wants_connection:
            return
        self._held_keys.append(digit)
        self._loop.call_soon(self._tell_keys)  # a key without a report of its beginning interrupts after this

    def on_prompt_complete(self, utterance: Utterance) -> None:
        """Report what the caller heard of an interrupted prompt, and prompts that could not be spoken."""
        if self._own.pop(utterance.id, None) is None:
            return
        if utterance.completion_cause is CompletionCause.BARGE_IN and utterance.interrupted_ns is not None:
            self._was_interrupted = True
            self._send(
                messages.Interrupt(
                    utterance_until_interrupt=utterance.spoken_text,
                    duration_until_interrupt_ms=round(utterance.played_ms),
                )
            )
        elif utterance.error is not None:
            self._send(messages.Error(description=f"{utterance.error.code}: {utterance.error.detail}"))
        self._tell_keys()
        self._finish_if_heard()

    def on_call_ended(self, reason: str) -> None:  # noqa: ARG002 - call.terminated tells it
        self._finish(*(self._ending or ("call_ended", "")))

    # -----------------------------------------------------------------------------------------------------------------

    def _tell_keys(self) -> None:
        """Report the keys, unless the line is still being silenced because of them."""
        if any(each.interrupted_ns is not None for each in self._live()):
            return
        keys, self._held_keys = self._held_keys, []
        if keys and self._was_interrupted:
            self._was_interrupted = False
            self._text.end()  # the next text answers the key, and does not continue the interrupted one
        for digit in keys:
            self._send(messages.Dtmf(digit=digit))

    def _begin(self) -> None:
        """Answer the call and say the greeting, or wait for the application's first message."""
        request, content = self.request, self._words(None)
        try:
            if request.welcome_greeting:
                greeting = TextContent(request.welcome_greeting, content.voice, content.language)
                self._speak(greeting, request.welcome_greeting_interruptible)
        except CcTtsError as error:
            self.refuse(error)
        if not self._own:
            self._await_answer()
        self.call.accept()

    def _await_answer(self) -> None:
        """Wait for the application to say something or to send keys; no other message ends this wait."""
        self._silence.cancel()
        if timeout_s := self.call.services.config.relay.silence_timeout_s:
            self._silence.set(timeout_s, self._nobody_speaks)

    def _nobody_speaks(self) -> None:
        if self.call.player.queue or self._outbox is None:
            self._await_answer()
        else:
            self.conclude("silent")

    def _say(self, text: messages.Text) -> None:
        begins = self._text.open_id is None
        if begins and text.token.strip():
            self._preempt()
        if text.token:
            self._text.tokens(text.token, opens_with=self._opening(text) if begins else DEFAULTS)
        if text.token.strip() and (utterance_id := self._text.open_id) is not None:
            self._silence.cancel()
            if begins:
                self._was_interrupted = False
                self._own[utterance_id] = text.preemptible
        if text.last:
            self._text.end()

    def _opening(self, text: messages.Text) -> Prompt:
        return self._prompt(self._words(text.lang), text.interrupted_by(self.request.interruptible))

    def _play(self, play: messages.Play) -> None:
        if usable_url(play.source, "http", "https") is None:
            raise Unprocessable.about(FieldError("/source", "an http or https URL without user, password and fragment"))
        self._text.end()
        self._preempt()
        self._speak(
            UrlContent(play.source),
            play.interrupted_by(self.request.interruptible),
            repeat=play.loop or FOREVER,
            preemptible=play.preemptible,
        )

    def _speak(
        self,
        content: Content,
        interruptible: Interruptible,
        *,
        repeat: int = 1,
        preemptible: bool = False,
    ) -> None:
        utterance = self.call.speak(self._prompt(content, interruptible, repeat=repeat))
        self._own[utterance.id] = preemptible
        self._silence.cancel()

    def _preempt(self) -> None:
        """Cut off earlier words that the application allows to be cut off; it is not told about that."""
        for utterance in self._live():
            if self._own[utterance.id]:
                del self._own[utterance.id]
                self.call.player.discard(utterance, CompletionCause.CANCELLED, by="replace")

    def _live(self) -> list[Utterance]:
        """The application's utterances that are not complete, the latest first."""
        return [each for each in reversed(self.call.player.queue) if each.id in self._own]

    def _words(self, language: str | None) -> TextContent:
        """Return how text of this language, or else of the application's chosen language, is spoken."""
        request, tag = self.request, language or self._language
        voice = request.languages.get(tag) or (request.voice if tag == request.language else "")
        return TextContent("", voice or None, tag or None)

    def _prompt(self, content: Content, interruptible: Interruptible, *, repeat: int = 1) -> Prompt:
        return Prompt(
            content=content,
            barge_in_dtmf=interruptible in ("dtmf", "any"),
            barge_in_speech=self._hears and interruptible in ("speech", "any"),
            repeat=repeat,
        )

    def _check_hearing(self) -> bool:
        try:
            self.call.services.vad.check()
        except SpeechNotHeard:
            if "speech" in self.request.interrupting:
                raise
            if "any" in self.request.interrupting:
                log.info("relay_without_speech", call_id=self.call.id, consequence="only keys interrupt")
            return False
        return True

    def _send_digits(self, digits: str) -> None:
        """Send keys with their pauses, after the keys that wait."""
        now_s = self._loop.time()
        self._later_digits = [each for each in self._later_digits if each.when() > now_s]
        if len(self._later_digits) > MAX_LATER_DIGITS:
            raise Unprocessable.about(
                FieldError("/digits", f"{len(self._later_digits)} groups of keys wait to be sent")
            )
        at_s = max(now_s, self._digits_until_s)
        for keys in filter(None, re.split("(w+)", digits)):
            if keys[0] == "w":
                at_s += PAUSE_S * len(keys)
                continue
            if at_s > now_s:
                self._later_digits.append(self._loop.call_at(at_s, partial(self._send_later, keys)))
            else:
                self.call.send_dtmf(keys)
            at_s += DIGIT_S * len(keys)
        if "w" in digits or self._later_digits:
            self._digits_until_s = at_s
        self._silence.cancel()

    def _send_later(self, keys: str) -> None:
        try:
            self.call.send_dtmf(keys)
        except CcTtsError as error:
            self.refuse(error)

    def _note(self, message: StreamMessage) -> None:
        if isinstance(message, TokensResult) and message.status == "full":
            self._send(
                messages.Error(
                    description=f"{message.buffered_chars} characters wait to be said (stream.max_buffered_chars), so this "
                    "text was not taken"
                )
            )
        elif isinstance(message, StreamSpeakRefused):
            self._send(messages.Error(description=f"{message.error}: {message.detail}"))

    def _send(self, message: messages.ToApplication) -> None:
        if isinstance(message, messages.Dtmf | messages.Interrupt) and self.wants_connection:
            self._await_answer()
        if self._outbox is not None:
            self._outbox.put(message)
        elif self.wants_connection:
            self._keep(message)

    def _keep(self, message: messages.ToApplication) -> None:
        if isinstance(message, messages.Setup):
            return
        if len(self._kept) < MAX_KEPT:
            self._kept.append(message)
        else:
            log.warning("relay_message_dropped", call_id=self.call.id, kept=MAX_KEPT)

    def _setup(self) -> messages.Setup:
        call = self.call
        return messages.Setup(
            session_id=self.request.sid,
            account_sid=ACCOUNT_SID,
            call_sid=call.id,
            from_=_number(call.caller),
            to=_number(call.callee),
            direction=call.direction,
            call_status="IN-PROGRESS" if call.state is CallState.ESTABLISHED else "RINGING",
            custom_parameters={**_told(call.headers), **call.metadata, **self.request.parameters},
        )


def tell_end(call: CallView, request: RelayRequest, cause: RelayCause, handoff_data: str = "") -> None:
    call.services.metrics.relays_ended.labels(cause=cause).inc()
    log.info("relay_ended", call_id=call.id, relay_id=request.id, cause=cause)
    call.publish(
        CallRelayEnded(
            relay_id=request.id,
            cause=cause,
            handoff_data=handoff_data or UNSET,
            client_state=_state_of(request),
        )
    )


def go_on(call: Call, request: RelayRequest, cause: RelayCause) -> None:
    """Do what follows a relay, so that the caller is not left in silence."""
    if call.running_transfer is not None or call.bridge.kept is not None:
        return  # the caller is already connected to somebody else
    if cause in FAILURES and request.fallback:
        content = TextContent(request.fallback, request.voice or None, request.language or None)
        try:
            call.speak(Prompt(content=content, queue="replace", then=request.then, unattended=True))
        except CcTtsError as error:
            log.warning("relay_fallback_failed", call_id=call.id, code=error.code)
        else:
            call.accept()
            return
    if request.then == "hangup" or call.waits_for_answer:
        call.end_heard_out(RELAY_FAILED if cause in FAILURES else "relay_ended")


def _state_of(request: RelayRequest) -> str | UnsetType:
    return UNSET if request.client_state is None else request.client_state


def _number(party: str) -> str:
    """Return the telephone number in a SIP URI, as applications expect it; the URI if there is none."""
    uri = uri_of(party)
    found = _NUMBER.match(uri)
    return uri if found is None else found[1]


def _told(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if not name.lower().startswith(_WITH_TEXT)}
