"""A warm transfer: the caller hears music while an agent is called, briefed and asked to accept; then both are bridged.

::

    requested ─▸ ringing ─▸ answered ─ brief ─▸ key ─▸ bridge ─▸ succeeded
         └──────────┴───────────┴─────────┴───────┴───────┴────▸ failed: the agent is hung up, the caller is back

Everything is done with the commands that a client has, too: prompts on both calls, a call that is placed, a bridge.
Runs on: the event loop.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

from cc_tts import logs
from cc_tts.calls.adoption.record import KeptBridge
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.events import types
from cc_tts.calls.follower import Follower
from cc_tts.calls.originate import OriginateRequest, OutgoingCalls
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance
from cc_tts.calls.transfers.bridge import new_bridge_id
from cc_tts.calls.transfers.transfer import AnyTransfer, TransferRequest
from cc_tts.calls.transfers.transfers import check_target, run
from cc_tts.errors import CcTtsError
from cc_tts.speech.prompt import FOREVER, STAGED_PREFIX, Prompt, StagedContent, ToneContent
from cc_tts.ua import messages

DEFAULT_ACCEPT_MS: Final = 15_000
"""The time that an agent has to press the key, unless the client gives one; unmeasured."""
COMFORT_TONE: Final = ToneContent("!425/80,!0/4920", 5_000)
"""A short tone every five seconds shows the caller that the line is alive; unmeasured."""
FAILED: Final = "transfer_failed"
_REASONS: Final[dict[str, types.TransferReason]] = {
    "busy": "busy",
    **dict.fromkeys(("no_answer", "unavailable", "cancelled"), "no_answer"),
    **dict.fromkeys(("unreachable", "ua_process_died", "no_response", "rtp_inactivity"), "unknown"),
}
"""The reason of a failed transfer, by how the agent's call ended."""

log = logs.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmRequest(TransferRequest):
    """A warm transfer to begin. The caller hears ``prompt`` and then ``music``; the agent hears ``brief`` and presses
    ``accept_key``, unless it is empty. ``timeout_ms`` is for the answer, ``accept_timeout_ms`` for the key.
    """

    from_: str | None = None
    accept_key: str = ""
    accept_timeout_ms: int = DEFAULT_ACCEPT_MS
    brief: Prompt | None = None
    music: Prompt | None = None
    on_hangup: messages.OnHangup = "end"


class _CallerSide(Follower):
    """Fails a warm transfer whose caller hangs up. The transfer itself follows the agent's call."""

    def __init__(self, fail: Callable[[types.TransferReason], None]) -> None:
        self._fail = fail

    def on_call_ended(self, reason: str) -> None:  # noqa: ARG002 - the call has it
        self._fail("call_ended")


class WarmTransfer(AnyTransfer):
    """A warm transfer. The caller hears the music of the configuration, unless the request has some."""

    _call: Call
    _request: WarmRequest

    def __init__(self, call: Call, request: WarmRequest, outgoing: OutgoingCalls) -> None:
        super().__init__(call, request, "warm")
        self.agent: Call | None = None
        self._outgoing = outgoing
        self._step: Literal["dial", "brief", "accept", "join"] = "dial"
        self._brief: Utterance | None = None
        self._heard: list[Utterance] = []
        """The prompts of the caller's call."""
        self._caller_side = _CallerSide(self._fail)

    @property
    def agent_call_id(self) -> str:
        """The call to the agent; empty before it is placed."""
        return "" if self.agent is None else self.agent.id

    # --- the steps -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the caller's prompts and call the agent."""
        music = self._request.music or _default_music(self._call.services.config.transfer.music)

        def wait() -> None:
            for prompt in filter(None, (self._request.prompt, _unceasing(music))):
                self._heard.append(self._call.speak(prompt))

        try:
            agent = self._outgoing.place(self._invite(), on_place=wait)
        except CcTtsError:
            self._silence_caller()
            raise
        self.agent = agent
        agent.bridge.kept = KeptBridge(id=self.id, other_call_id=self._call.id, waits=True, is_briefed=True)
        if self._request.brief is not None:
            self._brief = agent.player.queue[-1]
        self._call.followers.join(self._caller_side)
        agent.followers.join(self)
        agent.keep()
        self._tell()

    def _invite(self) -> OriginateRequest:
        request, call = self._request, self._call
        return OriginateRequest(
            to=request.to,
            from_=request.from_,
            headers=request.headers,
            timeout_s=request.timeout_ms / 1000,
            prompt=request.brief,
            voice=call.defaults.voice,
            metadata=dict(call.metadata),
            client_state=request.client_state,
            webhook=call.webhook,
            tenant=call.tenant,
            bridge=KeptBridge(id=new_bridge_id(), other_call_id=call.id),
        )

    def on_report(self, report: messages.CallReport) -> None:
        match report:
            case messages.CallRinging(sip_code=sip_code) if self.state == "requested":
                self.state = "ringing"
                self._tell(sip_code)
            case messages.CallEstablished() if self._step == "dial":
                self._answered()
            case messages.Bridged() if self._step == "join":
                self._finish("succeeded", confirmed=True)
            case messages.Unbridged() if self._step == "join":
                self._fail("unknown")

    def _answered(self) -> None:
        self._step, self.state = "brief", "answered"
        self._tell()
        if self._brief is None or self._brief.is_complete:
            self._briefed()

    def on_prompt_complete(self, utterance: Utterance) -> None:
        is_over = utterance.completion_cause is CompletionCause.CALL_ENDED
        if self._step == "brief" and utterance is self._brief and not is_over:
            self._briefed()

    def _briefed(self) -> None:
        if not self._request.accept_key:
            self._join()
            return
        self._step = "accept"
        self._timer.set(self._request.accept_timeout_ms / 1000, partial(self._fail, "timeout"))

    def on_key(self, digit: str, duration_ms: int) -> None:  # noqa: ARG002 - all the same
        if self._step in ("brief", "accept") and digit == self._request.accept_key:
            self._join()

    def _join(self) -> None:
        assert self.agent is not None
        self._step = "join"
        self._timer.cancel()
        self._silence_caller()
        self.agent.player.cancel_all()
        self.agent.bridge.kept = None
        request = self._request
        bridge = KeptBridge(
            id=new_bridge_id(),
            other_call_id=self.agent.id,
            on_hangup=request.on_hangup,
            client_state=request.client_state,
        )
        try:
            self._call.bridge.begin(self.agent.bridge, bridge)
        except CcTtsError as error:
            log.warning("transfer_failed", call_id=self._call.id, transfer_id=self.id, code=error.code)
            self._fail("unknown")

    # --- how it ends ---------------------------------------------------------------------------------------------------

    def on_call_ended(self, reason: str) -> None:  # noqa: ARG002 - the call has more of it
        """The agent's call is over."""
        ending = None if self.agent is None else self.agent.ending
        if ending is None or self._step != "dial":
            self._fail("rejected")
        else:
            self._fail(_REASONS.get(ending.reason, "rejected"), ending.sip_code or 0)

    def _fail(self, reason: types.TransferReason, sip_code: int = 0) -> None:
        if self.is_over:
            return
        self._finish("failed", sip_code, reason=reason)
        if self.agent is not None:
            self.agent.end(FAILED)
        if self._call.state is CallState.TERMINATED:
            return
        self._silence_caller()
        if self._request.on_failure == "hangup":
            self._call.end(FAILED, sip_code=sip_code, transfer_result=reason)

    def _silence_caller(self) -> None:
        for utterance in reversed(self._heard):
            if not utterance.is_complete:
                self._call.player.discard(utterance, CompletionCause.CANCELLED, by="stop")

    def _finish(self, state: types.TransferState, sip_code: int = 0, **more: Any) -> None:
        self._call.followers.leave(self._caller_side)
        if self.agent is not None:
            self.agent.followers.leave(self)
        super()._finish(state, sip_code, **more)

    def _tell(self, sip_code: int = 0, **more: Any) -> None:
        super()._tell(sip_code, agent_call_id=self.agent_call_id, **more)


def begin(call: Call, request: WarmRequest, outgoing: OutgoingCalls) -> WarmTransfer:
    """Transfer a call when an agent has accepted it.

    Raises:
        TransferNotAllowed: the configuration does not name the target.
        WrongState, BridgeActive: the call is not established, or is bridged.
        TransferActive: a transfer runs already.
        LineUnsupported: it came by a line without SIP.
        CcTtsError: as :meth:`.Call.speak`, of a prompt, and as :meth:`.OutgoingCalls.place`.
    """
    call.check_sip("bridge")
    check_target(request.to, call.services.config)
    call.bridge.check()
    return run(call, WarmTransfer(call, request, outgoing))


def _default_music(music: str) -> Prompt:
    prompt_id = music.removeprefix(STAGED_PREFIX)
    if not music:
        content: StagedContent | ToneContent = COMFORT_TONE
    elif prompt_id != music:
        content = StagedContent(prompt_id)
    else:
        content = ToneContent(music, 60_000)
    return Prompt(content=content)


def end_unbriefed(call: Call) -> None:
    """End a call to an agent that an earlier server placed: its transfer has failed."""
    if call.bridge.kept is not None and call.bridge.kept.is_briefed:
        with contextlib.suppress(CcTtsError):
            call.end(FAILED)


def _unceasing(music: Prompt) -> Prompt:
    """Return the music as a prompt that repeats until it is stopped; neither keys nor speech end it."""
    return replace(music, repeat=FOREVER, queue="append", then="stay", barge_in_dtmf=False, barge_in_speech=False)
