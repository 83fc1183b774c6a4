"""Bridges between two legs of this process: each far side hears what the other one says, and gets its keys.
Runs on: the SIP thread.

::

    far side A ─RTP─▸ AudioPort A ─ PassedFrame ─▸ + prompt of B ▸ AudioPort B ─RTP─▸ far side B, and the same back

A frame passes in Python between the ports, not on PJMEDIA's bridge, so that recordings and listeners of a leg get all that
its far side hears, and in step. In a tick PJMEDIA first takes from every port the frame to send, and then gives it the
received one. So a received frame is sent on in the next tick, 20 ms later, and none is left over.
"""

from collections.abc import Callable, Mapping
from typing import Final

import pjsua2 as pj

from cc_tts import logs
from cc_tts.processes.channel import Message
from cc_tts.ua import messages
from cc_tts.ua.leg import Leg
from cc_tts.ua.pjsip.sip_thread import pj_detail
from cc_tts.ua.rtp.audio_port import PassedFrame
from cc_tts.ua.rtp.keys import DtmfKey

DEFAULT_KEY_MS: Final = 160
"""The duration with which a key without one is passed on; unmeasured."""
MIN_KEY_MS: Final = 40
"""The shortest key that every receiver accepts (ITU-T Q.24)."""
MAX_KEY_MS: Final = 6000
"""The longest duration with which a key is passed on: one event lasts 8 s at most (RFC 4733 §2.5.1.3); unmeasured."""

log = logs.get(__name__)


class Bridges:
    """The bridges of a user agent. ``legs`` are its legs by call."""

    def __init__(self, legs: Mapping[str, Leg], send: Callable[[Message], None]) -> None:
        self._legs = legs
        self._send = send
        self._asked: dict[str, messages.Bridge] = {}  # under the ids of both calls
        self._to_end: list[str] = []

    def command(self, message: messages.Bridge | messages.Unbridge) -> None:
        if isinstance(message, messages.Unbridge):
            self._part(message.call_id, "requested")
        else:
            self._connect(message)

    def _connect(self, asked: messages.Bridge) -> None:
        first, second = (self._live(call_id) for call_id in (asked.call_id, asked.other_call_id))
        if first is None or second is None:
            self._tell_parted(asked, "call_ended")
            return
        if first is second or first.bridge_id or second.bridge_id:
            self._tell_parted(asked, "failed")
            return
        there, back = PassedFrame(maxlen=1), PassedFrame(maxlen=1)
        self._asked |= dict.fromkeys((first.call_id, second.call_id), asked)
        try:
            for leg, heard, said in ((first, back, there), (second, there, back)):
                leg.bridge_id = asked.bridge_id
                leg.media.bridge(heard, said)
        except pj.Error as error:
            log.warning("bridge_failed", call_id=first.call_id, detail=pj_detail(error))
            self._part(first.call_id, "failed")
            return
        for leg in (first, second):
            self._send(messages.Bridged(leg.call_id, asked.bridge_id))

    def _live(self, call_id: str) -> Leg | None:
        leg = self._legs.get(call_id)
        return None if leg is None or leg.is_over else leg

    def _part(self, call_id: str, because: messages.UnbridgedBecause) -> messages.Bridge | None:
        """End the bridge of a call; return the command that made it."""
        asked = self._asked.pop(call_id, None)
        if asked is None:
            return None
        for each in (asked.call_id, asked.other_call_id):
            self._asked.pop(each, None)
            if (leg := self._legs.get(each)) is not None:
                leg.bridge_id = ""
                leg.media.bridge(None, None)
        self._tell_parted(asked, because)
        return asked

    def _tell_parted(self, asked: messages.Bridge, because: messages.UnbridgedBecause) -> None:
        for call_id in (asked.call_id, asked.other_call_id):
            self._send(messages.Unbridged(call_id, asked.bridge_id, because))

    def over(self, call_id: str) -> None:
        """A call is over, and with it its bridge. The other call is ended in :meth:`tick`, since PJSIP is still ending this
        one.
        """
        asked = self._part(call_id, "call_ended")
        if asked is not None and asked.on_hangup == "end":
            self._to_end.append(_other(asked, call_id))

    def tick(self) -> None:
        """End the calls that end together with the other one."""
        while self._to_end:
            leg = self._live(self._to_end.pop())
            if leg is not None:
                try:
                    leg.end(messages.Hangup(call_id=leg.call_id, cause="bridge_ended"), "bridge")
                except pj.Error as error:
                    detail = pj_detail(error)
                    self._send(messages.CommandFailed(call_id=leg.call_id, command="hangup", detail=detail))

    def pass_key(self, call_id: str, key: DtmfKey) -> None:
        """Pass a key of one far side to the other leg, by the method that its far side takes."""
        if (asked := self._asked.get(call_id)) is None:
            return
        leg = self._live(_other(asked, call_id))
        if leg is None:
            return
        duration_ms = min(max(key.duration_ms or DEFAULT_KEY_MS, MIN_KEY_MS), MAX_KEY_MS)
        try:
            leg.send_dtmf(messages.SendDtmf(leg.call_id, key.digit, duration_ms))
        except pj.Error as error:
            self._send(messages.CommandFailed(call_id=leg.call_id, command="dtmf", detail=pj_detail(error)))


def _other(asked: messages.Bridge, call_id: str) -> str:
    return asked.other_call_id if call_id == asked.call_id else asked.call_id
