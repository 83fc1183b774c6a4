"""One transfer of a call by REFER (RFC 3515, RFC 5589): its steps, its events and its outcome. Runs on: the event loop.

The call is kept until the outcome is known: the far side calls its target and tells us by NOTIFY how that went. At many
peers a hang-up after the 202 would end the transfer, too.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Self

import msgspec
from msgspec import UNSET

from cc_tts import logs
from cc_tts.calls.adoption.record import KeptTransfer
from cc_tts.calls.call_state import CallState
from cc_tts.calls.events import types
from cc_tts.calls.follower import CallView, Follower
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance
from cc_tts.calls.timer import CallTimer
from cc_tts.speech.prompt import Prompt
from cc_tts.ua import messages

DEFAULT_TIMEOUT_MS: Final = 30_000
"""A transfer without a result fails after this time, unless the client gives one; unmeasured."""
HOLD_TIMEOUT_S: Final = 2.0
"""The time that the answer to our hold may take; then the REFER is sent anyway; unmeasured."""
BYE_AFTER_S: Final = 0.5
"""We hang up after a successful transfer if the far side has not done so within this time; unmeasured."""
LAST_WORD_S: Final = 2.0
"""A far side whose reports end without a result may hang up within this time; that counts as success. Unmeasured."""
_STATES: Final = ("requested", "accepted", "trying", "ringing", "succeeded")
_NOT_SUPPORTED: Final = frozenset({405, 489, 501})
_BUSY: Final = frozenset({486, 600})
_NO_ANSWER: Final = frozenset({408, 480, 487})
_OK: Final = 200
_REFUSED: Final = 300
_TRYING: Final = 100

log = logs.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRequest:
    """A transfer to begin, of whatever kind. The caller hears ``prompt`` first."""

    to: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    on_failure: Literal["keep", "hangup"] = "keep"
    prompt: Prompt | None = None
    transfer_id: str = ""
    client_state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferRequest(TransferRequest):
    """A transfer by REFER. ``consult``: the call whose far side is the target of an attended transfer, which needs no
    ``to``. ``when_answered``: the call may still be unanswered.
    """

    consult: CallView | None = None
    referred_by: str = ""
    hold: bool = True
    when_answered: bool = False

    @property
    def mode(self) -> types.TransferMode:
        """``attended`` if another call was consulted."""
        return "blind" if self.consult is None else "attended"


class AnyTransfer(Follower, ABC):
    """A transfer of a call, from the command to its last event. It reports its progress by events."""

    def __init__(self, call: CallView, request: TransferRequest, mode: types.TransferMode) -> None:
        self.id = request.transfer_id or f"transfer_{secrets.token_hex(8)}"
        self.state: types.TransferState = "requested"
        self.is_over = False
        """Whether its last event has been published, or is about to be."""
        self._call = call
        self._mode = mode
        self._timer = CallTimer(call.id)
        self._request = request

    @abstractmethod
    def begin(self) -> None:
        """Begin; if that fails its error is raised, and nothing has begun."""

    @property
    def kept(self) -> KeptTransfer:
        """The part of the transfer that another server needs."""
        return KeptTransfer(
            id=self.id,
            state=self.state,
            is_sent=False,
            mode=self._mode,
            timeout_ms=self._request.timeout_ms,
            on_failure=self._request.on_failure,
            client_state=self._request.client_state,
        )

    def _tell(self, sip_code: int = 0, **more: Any) -> None:
        self._call.publish(
            types.CallTransfer(
                transfer_id=self.id,
                mode=self._mode,
                state=self.state,
                sip_code=sip_code or None,
                client_state=UNSET if self._request.client_state is None else self._request.client_state,
                **more,
            )
        )

    def _finish(self, state: types.TransferState, sip_code: int = 0, **more: Any) -> None:
        self._timer.cancel()
        self.is_over, self.state, call = True, state, self._call
        self._tell(sip_code, **more)
        result = more.get("reason") or state
        call.services.metrics.transfers.labels(mode=self._mode, result=result).inc()
        log.info("transfer", call_id=call.id, transfer_id=self.id, mode=self._mode, result=result)


class Transfer(AnyTransfer):
    """A transfer by REFER."""

    _request: ReferRequest

    def __init__(self, call: CallView, request: ReferRequest) -> None:
        super().__init__(call, request, request.mode)
        self._step: Literal["speak", "answer", "hold", "refer"] = "speak"
        self._utterance: Utterance | None = None
        self._holds = False
        """Whether this transfer has held the call."""

    # --- the steps -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Say the prompt first, then hold the call, then send the REFER."""
        if self._request.prompt is not None:
            self._utterance = self._call.speak(self._request.prompt)
        else:
            self._hold_once_answered()
        self._call.followers.join(self)

    def on_report(self, report: messages.CallReport) -> None:
        match report:
            case messages.HoldChanged():
                self._hold_settled()
            case messages.CommandFailed(command="hold"):
                self._holds = False
                self._hold_settled()
            case _ if self.is_over:
                pass
            case messages.CallEstablished() if self._step == "answer":
                self._hold()
            case messages.TransferProgress() if self._step == "refer":
                self._take(report)
            case messages.CommandFailed(command="transfer") if self._step == "refer":
                self._fail("unknown")

    def on_prompt_complete(self, utterance: Utterance) -> None:
        """A prompt of the call is complete; continue if it was the transfer's, however it ended."""
        is_over = utterance.completion_cause is CompletionCause.CALL_ENDED
        if self._step == "speak" and utterance is self._utterance and not is_over:
            self._hold_once_answered()

    def _hold_once_answered(self) -> None:
        self._step = "answer"
        if self._call.state is CallState.ESTABLISHED:
            self._hold()

    def _hold(self) -> None:
        self._step = "hold"
        if not self._request.hold or self._call.held:
            self._refer()
            return
        self._holds = True
        self._timer.set(HOLD_TIMEOUT_S, self._refer)
        self._call.set_hold(hold=True)

    def _hold_settled(self) -> None:
        """The call was held or resumed: by our re-INVITE, perhaps late, or for another reason."""
        if not self.is_over and self._step == "hold":
            self._refer()
        elif self.state == "failed":
            self._take_back()  # the re-INVITE was answered after the transfer had failed

    def _refer(self) -> None:
        self._step = "refer"
        self._limit_time()
        self._tell()
        self._call.services.ua.send(
            messages.Transfer(
                call_id=self._call.id,
                to=self._request.to,
                headers=self._request.headers,
                referred_by=self._request.referred_by,
            )
        )

    def _limit_time(self) -> None:
        self._timer.set(self._request.timeout_ms / 1000, partial(self._fail, "timeout"))

    # --- what becomes of it --------------------------------------------------------------------------------------------

    def _take(self, progress: messages.TransferProgress) -> None:
        """Handle a response to the REFER or a NOTIFY. They come in any order, and some may be missing."""
        sip_code = progress.sip_code
        if sip_code >= _REFUSED:
            self._fail(_reason_of(sip_code, progress.by), sip_code)
        elif progress.by == "answer":
            self._advance("accepted", sip_code)
        elif sip_code >= _OK:
            self._succeed(sip_code)
        else:
            if sip_code:
                self._advance("trying" if sip_code == _TRYING else "ringing", sip_code)
            if progress.is_last:
                self._timer.set(LAST_WORD_S, partial(self._fail, "unknown"))

    @property
    def kept(self) -> KeptTransfer:
        is_sent = self._step == "refer"
        return msgspec.structs.replace(super().kept, is_sent=is_sent, holds=self._holds, hold=self._request.hold)

    @classmethod
    def restored(cls, call: CallView, kept: KeptTransfer, told: Iterable[messages.TransferProgress]) -> Self:
        """Continue the transfer of an earlier server, with what the far side has reported meanwhile."""
        request = ReferRequest(
            transfer_id=kept.id,
            timeout_ms=kept.timeout_ms,
            on_failure=kept.on_failure,
            hold=kept.hold,
            client_state=kept.client_state,
        )
        transfer = cls(call, request)
        transfer.state, transfer._holds, transfer._mode = kept.state, kept.holds, kept.mode
        transfer._step = "refer"
        call.followers.join(transfer)
        if kept.is_sent:
            transfer._limit_time()
            for progress in told:
                transfer.on_report(progress)
        else:
            transfer._fail("unknown")
        return transfer

    def on_call_ended(self, reason: str) -> None:
        """The call is over. A far side that hangs up after it accepted the REFER has presumably reached the target."""
        if self.is_over:
            return
        if reason == "remote_hangup" and self.state != "requested":
            self._finish("succeeded", reason="unknown", confirmed=False)
        else:
            self._finish("failed", reason="call_ended")

    def _advance(self, state: types.TransferState, sip_code: int) -> None:
        if _STATES.index(state) <= _STATES.index(self.state):
            return
        if self.state == "requested" and self._request.hold:
            self._call.player.cancel_all()
        self.state = state
        self._tell(sip_code)

    def _succeed(self, sip_code: int) -> None:
        self._finish("succeeded", sip_code, confirmed=True)
        consult = self._request.consult
        self._timer.set(BYE_AFTER_S, partial(_end_all, [self._call, *([consult] if consult else [])]))

    def _fail(self, reason: types.TransferReason, sip_code: int = 0) -> None:
        self._finish("failed", sip_code, reason=reason)
        if self._request.on_failure == "hangup":
            self._call.end("transfer_failed", sip_code=sip_code, transfer_result=reason)
        else:
            self._take_back()

    def _take_back(self) -> None:
        if self._holds and self._call.held:
            self._holds = False
            self._call.set_hold(hold=False)


def _end_all(calls: list[CallView]) -> None:
    for call in calls:
        call.end("transferred", transfer_result="succeeded")


def _reason_of(sip_code: int, by: messages.ToldBy) -> types.TransferReason:
    if sip_code in _BUSY:
        return "busy"
    if sip_code in _NO_ANSWER:
        return "timeout" if by == "answer" and sip_code == 408 else "no_answer"  # noqa: PLR2004 - Request Timeout
    if by == "answer" and sip_code in _NOT_SUPPORTED:
        return "not_supported"
    return "rejected"
