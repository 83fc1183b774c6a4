"""The UA process as the registry sees it: commands are written down, reports are made up by the test."""

import contextlib
from typing import Any, Final

from cc_tts.errors import UserAgentUnavailable
from cc_tts.media.playout_events import PlayoutFinished, PlayoutSpeech
from cc_tts.media.quality import Quality
from cc_tts.processes.channel import Message
from cc_tts.ua import messages
from cc_tts.ua.client import UaListener

COMMANDS: Final[dict[type[Message], tuple[str, ...]]] = {
    messages.Ring: ("ring", "early_media"),
    messages.Answer: ("answer",),
    messages.Hangup: ("hangup", "sip_code", "reason", "retry_after_s"),
    messages.SetHold: ("hold", "hold"),
    messages.SendDtmf: ("dtmf", "digits", "duration_ms"),
    messages.Transfer: ("transfer", "to", "headers", "referred_by"),
    messages.AllowRefers: ("allow_refers", "targets"),
    messages.TellReferrer: ("tell_referrer", "refer_id", "sip_code"),
    messages.Bridge: ("bridge", "other_call_id", "bridge_id", "on_hangup"),
    messages.Unbridge: ("unbridge",),
    messages.WithholdKeys: ("withhold_keys", "withheld"),
    messages.Originate: ("originate", "to", "from_", "headers"),
    messages.BeginUtterance: ("begin", "utterance_id"),
    messages.Audio: ("audio", "utterance_id"),
    messages.ExpectUnderrun: ("await_more", "utterance_id"),
    messages.FinishUtterance: ("finish", "utterance_id"),
    messages.CutUtterance: ("cut", "utterance_id"),
    messages.SetPaused: ("paused", "paused"),
    messages.MeasureLevels: ("levels",),
    messages.SetListening: ("listen", "directions"),
    messages.StartRecording: ("record", "is_paused"),
    messages.SetRecordingPaused: ("record_paused", "paused", "skips", "delay_ms"),
    messages.StopRecording: ("record_stop", "reason"),
}
"""How :meth:`FakeUa.commands` names a command, and what of it is remembered besides the call."""


def invite_of(call_id: str, user: str = "greet", **more: Any) -> messages.IncomingCall:
    fields: dict[str, Any] = {
        "sip_call_id": f"sip-{call_id}",
        "caller": "<sip:alice@127.0.0.1>",
        "callee": f"<sip:{user}@127.0.0.1>",
        "request_uri": f"sip:{user}@127.0.0.1:5060",
        "source": "127.0.0.1",
        "headers": {},
    }
    return messages.IncomingCall(call_id=call_id, **(fields | more))


class FakeUa:
    """``asked``: what the registry wanted, in order. ``is_ready`` False: every command is refused."""

    def __init__(self, *, max_calls: int = 4) -> None:
        self.is_ready = True
        self.max_calls = max_calls
        self.active_calls: set[str] = set()
        self.lateness = messages.MediaLateness(p99_ms=0.0, refusing=False)
        self.build: dict[str, str] = {}
        self.registered: bool | None = None
        self.traced: tuple[messages.TracedMessage, ...] | None = ()
        """What is kept of every call; ``None``: nothing is."""
        self.accepting = True
        self.default_caller = "sip:cc-tts@127.0.0.1:5060"
        self.asked: list[tuple[Any, ...]] = []
        self.sent: list[Message] = []
        self.records: dict[str, bytes] = {}
        """What it keeps for another server, by call."""
        self.causes: list[str] = []
        self.noted: list[str] = []
        self.tails_ms: dict[str, int] = {}
        self.lead_in_ms: dict[str, int] = {}
        self.placed_beside: dict[str, str] = {}
        self.has_one_process = True
        self.listener: UaListener
        self._calls = 0

    @property
    def is_full(self) -> bool:
        return self.is_ready and len(self.active_calls) >= self.max_calls

    @property
    def lets_calls_in(self) -> bool:
        return self.accepting

    # --- commands

    def set_accepting(self, *, accepting: bool) -> None:
        self.accepting = accepting

    async def trace(self, call_id: str, sip_call_id: str) -> messages.CallTrace:
        is_on = self.traced is not None
        return messages.CallTrace(call_id=call_id, serial=1, messages=self.traced or (), is_on=is_on)

    def send(self, message: Any, payload: bytes = b"") -> None:
        if not self.is_ready:
            raise UserAgentUnavailable
        if isinstance(message, messages.KeepRecord):
            self.records[message.call_id] = message.record
            return
        self.sent.append(message)
        name, *fields = COMMANDS[type(message)]
        command = (name, message.call_id, *(getattr(message, field) for field in fields))
        match message:
            case messages.Audio():
                command += (len(payload),)
            case messages.Originate(call_id=call_id):
                self.active_calls.add(call_id)
            case messages.Hangup(call_id=call_id):
                self.causes.append(message.cause)
                self.tails_ms[call_id] = message.tail_ms
            case messages.Answer(call_id=call_id) | messages.Ring(call_id=call_id):
                self.lead_in_ms[call_id] = message.lead_in_ms
        self.asked.append(command)

    def tell(self, message: Any, payload: bytes = b"") -> None:
        with contextlib.suppress(UserAgentUnavailable):
            self.send(message, payload)

    def originate(self, message: messages.Originate, *, beside: str = "") -> None:
        self.placed_beside[message.call_id] = beside
        self.send(message)

    def are_together(self, *call_ids: str) -> bool:
        return self.has_one_process

    def note_end(self, call_id: str) -> None:
        self.noted.append(call_id)

    def commands(self, name: str) -> list[tuple[Any, ...]]:
        return [command[1:] for command in self.asked if command[0] == name]

    # --- reports

    def report(self, message: Message) -> None:
        match message:
            case messages.IncomingCall(call_id=call_id):
                self.active_calls.add(call_id)
            case messages.CallEnded(call_id=call_id):
                self.active_calls.discard(call_id)
            case messages.MediaLateness():
                self.lateness = message
        self.listener.on_ua_message(message)

    def incoming(
        self,
        user: str = "greet",
        *,
        source: str = "127.0.0.1",
        headers: dict[str, str] | None = None,
        uri: str = "",
        call_id: str = "",
        caller: str = "<sip:alice@127.0.0.1>",
        callee: str = "",
    ) -> str:
        """An INVITE; returns the call's id."""
        self._calls += 1
        call_id = call_id or f"in{self._calls}"
        uri = uri or f"sip:{user}@127.0.0.1:5060"
        callee = callee or f"<sip:{user}@127.0.0.1>"
        self.report(
            invite_of(call_id, caller=caller, callee=callee, request_uri=uri, source=source, headers=headers or {})
        )
        return call_id

    def established(self, call_id: str, *, at_ns: int = 0) -> None:
        self.report(messages.MediaActive(call_id=call_id, codec="PCMU", clock_rate_hz=8000))
        self.report(messages.CallEstablished(call_id=call_id, sip_call_id=f"sip-{call_id}", at_ns=at_ns))

    def ended(
        self,
        call_id: str,
        *,
        by: messages.EndedBy = "remote",
        sip_code: int = 200,
        quality: Quality | None = None,
        at_ns: int = 0,
    ) -> None:
        quality = quality or Quality(packets_sent=7)
        self.report(messages.CallEnded(call_id, sip_code=sip_code, ended_by=by, quality=quality, at_ns=at_ns))

    def speech(self, call_id: str, utterance_id: str, *, at_ns: int) -> None:
        self.report(messages.PlayoutReport(call_id=call_id, event=PlayoutSpeech(utterance_id, at_ns)))

    def finished(self, call_id: str, utterance_id: str, *, cut: bool = False, at_ns: int = 0) -> None:
        self.report(
            messages.PlayoutReport(
                call_id=call_id,
                event=PlayoutFinished(
                    utterance_id=utterance_id,
                    cause="cut" if cut else "drained",
                    played_ms=400.0,
                    underruns=0,
                    at_ns=at_ns,
                ),
            )
        )

    def audio(
        self,
        call_id: str,
        pcm: bytes,
        direction: messages.AudioDirection = "in",
        *,
        at_ns: int = 0,
        num_dropped: int = 0,
    ) -> None:
        self.listener.on_ua_message(messages.CallAudio(call_id, direction, at_ns, num_dropped), pcm)

    def key_down(self, call_id: str, *, at_ns: int) -> None:
        """A key goes down; :meth:`digit` with the same instant tells that it went up."""
        self.report(messages.DtmfBegan(call_id=call_id, at_ns=at_ns))

    def digit(self, call_id: str, digit: str = "5", *, at_ns: int = 0) -> None:
        self.report(messages.DtmfReceived(call_id=call_id, digit=digit, duration_ms=100, method="rfc4733", at_ns=at_ns))

    def die(self) -> None:
        self.is_ready = False
        call_ids, self.active_calls = self.active_calls, set()
        self.listener.on_ua_down("killed by SIGKILL", call_ids)

    def come_back(self) -> None:
        self.is_ready = True
        self.listener.on_ua_ready(self.build)
