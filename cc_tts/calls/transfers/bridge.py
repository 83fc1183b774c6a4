"""The bridge of one call to another, and its events. Every command that bridges two calls goes through here. Runs on: the
event loop.

The audio passes in the UA process, which also ends the other call if that was asked for: so a bridge outlives the server.
"""

import secrets
from typing import Final

import msgspec
from msgspec import UNSET

from cc_tts import logs
from cc_tts.calls.adoption.record import KeptBridge
from cc_tts.calls.call_state import CallState
from cc_tts.calls.events import types
from cc_tts.calls.follower import CallView
from cc_tts.errors import BridgeActive, BridgeImpossible, WrongState
from cc_tts.ua import messages

BRIDGE_FAILED: Final = "bridge_failed"
"""The reason of a call that was placed for a bridge and could not be bridged."""

log = logs.get(__name__)


def new_bridge_id() -> str:
    return f"bridge_{secrets.token_hex(8)}"


class CallBridge:
    """The bridge that one call is part of, and its events."""

    def __init__(self, call: CallView) -> None:
        self.call = call
        self.kept: KeptBridge | None = None
        self._are_keys_withheld = False

    @property
    def waits(self) -> bool:
        return self.kept is not None and self.kept.waits

    @property
    def other(self) -> str:
        """The call that it is bridged to; empty without a bridge."""
        return self.kept.other_call_id if self.kept is not None and self.kept.is_up else ""

    def withhold_keys(self, *, withheld: bool) -> None:
        """Keep secret keys from the other call of the bridge, also from one that may be bridged soon."""
        if self._are_keys_withheld != withheld:
            self._are_keys_withheld = withheld
            self.call.services.ua.tell(messages.WithholdKeys(self.call.id, withheld))

    def leg_renewed(self) -> None:
        """Tell the new leg of the call that keys are secret."""
        if self._are_keys_withheld:
            self.call.services.ua.tell(messages.WithholdKeys(self.call.id, withheld=True))

    def check(self) -> None:
        """Raise ``WrongState`` or ``BridgeActive`` if the call cannot be bridged now."""
        if self.call.state is not CallState.ESTABLISHED:
            raise WrongState(f"call {self.call.id} is {self.call.state}: bridge is not possible")
        if (kept := self.kept) is not None and (kept.is_briefed or not kept.waits):
            how = "is the agent of a warm transfer of" if kept.is_briefed else "is bridged to"
            raise BridgeActive(f"call {self.call.id} {how} {kept.other_call_id}")

    def begin(self, other: "CallBridge", wanted: KeptBridge, *, is_placed: bool = False) -> None:
        """Bridge the call to another one; ``call.bridged`` of both follows, and ``call.unbridged`` once. ``is_placed``: the
        call was placed for that.

        Raises:
            WrongState: one of them is not established, or they are the same.
            BridgeActive: one of them is bridged already.
            BridgeImpossible: they are in different UA processes.
            LineUnsupported: one of them came by a line without SIP.
            UserAgentUnavailable: their UA process is not up.
        """
        call, far, ua = self.call, other.call, self.call.services.ua
        if call is far:
            raise WrongState(f"call {call.id} cannot be bridged to itself")
        for each in (call, far):
            each.check_sip("bridge")
        self.check()
        other.check()
        if not ua.are_together(call.id, far.id):
            raise BridgeImpossible(
                "the calls are in different SIP processes (ua.processes): place one of them with bridge.call_id"
            )
        ua.send(messages.Bridge(call.id, far.id, wanted.id, wanted.on_hangup))
        self.keep(msgspec.structs.replace(wanted, other_call_id=far.id, is_placed=is_placed))
        other.keep(msgspec.structs.replace(wanted, other_call_id=call.id, is_placed=False))

    def keep(self, kept: KeptBridge) -> None:
        """Note the bridge that was asked for, also for another server."""
        self.kept = kept
        self.call.keep()

    def ask_end(self) -> KeptBridge:
        """Ask for the end of the bridge; return it.

        Raises:
            WrongState: there is none.
        """
        if (kept := self.kept) is None or kept.waits:
            raise WrongState(f"call {self.call.id} is not bridged")
        self.call.services.ua.send(messages.Unbridge(self.call.id))
        return kept

    def made(self, bridge_id: str) -> None:
        if (kept := self.kept) is None or kept.id != bridge_id or kept.is_up:
            return
        self.kept = msgspec.structs.replace(kept, is_up=True)
        self.call.publish(
            types.CallBridged(
                bridge_id=kept.id,
                other_call_id=kept.other_call_id,
                on_hangup=kept.on_hangup,
                client_state=UNSET if kept.client_state is None else kept.client_state,
            )
        )

    def over(self, bridge_id: str, because: messages.UnbridgedBecause) -> None:
        """The bridge has ended or could not be made. A call that was placed for it then ends, unless it is to be kept."""
        if (kept := self.kept) is None or kept.id != bridge_id or kept.waits:
            return
        self.kept = None
        self.call.services.metrics.bridges.labels(reason=because).inc()
        log.info("unbridged", call_id=self.call.id, bridge_id=kept.id, reason=because)
        self.call.publish(
            types.CallUnbridged(
                bridge_id=kept.id,
                other_call_id=kept.other_call_id,
                reason=because,
                client_state=UNSET if kept.client_state is None else kept.client_state,
            )
        )
        if kept.is_placed and not kept.is_up and kept.on_hangup == "end":
            self.call.end(BRIDGE_FAILED)

    def call_ended(self) -> None:
        if self.kept is not None:
            self.over(self.kept.id, "call_ended")
            self.kept = None

    def restore(self, kept: KeptBridge | None, bridge_id: str) -> None:
        """Restore the bridge of an earlier server; ``bridge_id`` is the leg's, empty without one."""
        self.kept = kept
        if kept is None or kept.waits:
            return
        if bridge_id == kept.id:
            self.made(bridge_id)
        else:
            self.over(kept.id, "call_ended" if kept.is_up else "failed")
