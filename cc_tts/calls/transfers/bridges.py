"""The bridges of all calls. Every command that bridges two calls goes through here. Runs on: the event loop."""

import msgspec

from cc_tts.calls.adoption.record import KeptBridge
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.call_table import CallTable
from cc_tts.calls.events import types
from cc_tts.calls.transfers.bridge import BRIDGE_FAILED
from cc_tts.errors import BridgeImpossible, CcTtsError, WrongState
from cc_tts.ua import messages
from cc_tts.ua.client import UaClient


class Bridges:
    """Makes the bridges of calls."""

    def __init__(self, ua: UaClient, table: CallTable) -> None:
        self._ua = ua
        self._table = table

    def begin(self, call: Call, wanted: KeptBridge, *, is_placed: bool = False) -> None:
        """Bridge a call to another one; ``call.bridged`` of both follows, and ``call.unbridged`` once. ``is_placed``: the
        call was placed for that.

        Raises:
            CallNotFound: there is no such other call.
            WrongState: one of them is not established, or they are the same.
            BridgeActive: one of them is bridged already.
            BridgeImpossible: they are in different UA processes.
            LineUnsupported: one of them came by a line without SIP.
            UserAgentUnavailable: their UA process is not up.
        """
        other = self._table.find(wanted.other_call_id)
        if call is other:
            raise WrongState(f"call {call.id} cannot be bridged to itself")
        for each in (call, other):
            each.check_sip("bridge")
        call.bridge.check()
        other.bridge.check()
        if not self._ua.are_together(call.id, other.id):
            raise BridgeImpossible(
                "the calls are in different SIP processes (ua.processes): place one of them with bridge.call_id"
            )
        self._ua.send(messages.Bridge(call.id, other.id, wanted.id, wanted.on_hangup))
        for each, far in ((call, other), (other, call)):
            is_for_far = is_placed and each is call
            each.bridge.kept = msgspec.structs.replace(wanted, other_call_id=far.id, is_placed=is_for_far)
            each.keep()

    def answered(self, call: Call) -> None:
        """A call was answered: bridge it if it waits for that. It ends if the bridge fails, unless it is to be kept."""
        if not call.bridge.waits or (kept := call.bridge.kept) is None or kept.is_briefed:
            return
        call.bridge.kept = None
        try:
            self.begin(call, msgspec.structs.replace(kept, waits=False), is_placed=True)
        except CcTtsError as error:
            call.publish(types.CallCommandFailed(command="bridge", detail=error.detail))
            if kept.on_hangup == "end":
                call.end(BRIDGE_FAILED)

    def adopt(self, call: Call) -> None:
        """Bridge a call that was answered while there was no server, if it waits for that."""
        if call.state is CallState.ESTABLISHED and call.local_reason is None:
            self.answered(call)

    def ended(self, call: Call) -> None:
        """A call is over: end the calls that ring for a bridge to it, unless they are to be kept."""
        for each in tuple(self._table.live.values()):
            kept = each.bridge.kept
            is_for_it = kept is not None and kept.waits and kept.other_call_id == call.id
            if is_for_it and kept is not None and kept.on_hangup == "end" and each.state is not CallState.ESTABLISHED:
                each.end("bridge_ended")
