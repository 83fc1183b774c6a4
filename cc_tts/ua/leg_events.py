"""What pjsua2 says, in our messages' words. Runs on: the SIP thread."""

import re
from typing import Any, Final

import pjsua2 as pj

from cc_tts.ua.guard import srtp_sdp
from cc_tts.ua.messages import MediaQuality
from cc_tts.ua.sip import message as sip_message
from cc_tts.ua.sip_thread import SipThread

DTMF_IS_UPDATE: Final = 1
DTMF_IS_END: Final = 2
"""``pjmedia_stream_dtmf_event_flags``, which pjsua2 does not wrap."""
_ENCRYPTED: Final = re.compile(r"^\s+SRTP status: Active", re.MULTILINE)


def media_quality(call: Any, stream_index: int, *, underruns: int, late_frames: int) -> MediaQuality:
    """RTCP's and the playout buffer's view of a leg that has a stream (RFC 3550 §6.4)."""
    SipThread.check()
    stat = call.getStreamStat(stream_index).rtcp
    round_trip_us = stat.rttUsec.last if stat.rttUsec.n else None
    jitter_us = stat.rxStat.jitterUsec.mean if stat.rxStat.jitterUsec.n else None
    return MediaQuality(
        packets_sent=stat.txStat.pkt,
        packets_received=stat.rxStat.pkt,
        packets_lost=stat.rxStat.loss,
        jitter_ms=None if jitter_us is None else jitter_us / 1000,
        round_trip_ms=None if round_trip_us is None else round_trip_us / 1000,
        underruns=underruns,
        late_frames=late_frames,
        packets_discarded=stat.rxStat.discard,
    )


def audio_media(info: Any) -> Any | None:
    """The call's live audio among its m-lines, ``None`` if it has none; a rejected m-line may stand before it."""
    for media in info.media:
        if media.type == pj.PJMEDIA_TYPE_AUDIO and media.status != pj.PJSUA_CALL_MEDIA_NONE:
            return media
    return None


def call_options() -> Any:
    """pjsua2's usual options of a call, for audio alone: pjproject 2.17 would offer real-time text besides."""
    param = pj.CallOpParam(True)  # noqa: FBT003 - SWIG takes no keywords
    if hasattr(param.opt, "textCount"):
        param.opt.textCount = 0
    return param


def add_header(param: Any, name: str, value: str) -> None:
    """Have what is sent carry a header."""
    header = pj.SipHeader()
    header.hName, header.hValue = name, value
    param.txOption.headers.append(header)


def is_encrypted(call: Any) -> bool:
    """Whether the call's media is SRTP now. Its m-line does not tell: RTP/AVP with keys is encrypted as well. PJSIP says it
    in its dump of a call only, on a line of its own: the first line has what the far side calls itself.
    """
    SipThread.check()
    return _ENCRYPTED.search(call.dump(True, "")) is not None  # noqa: FBT003 - SWIG takes no keywords


def answered_over(state: Any) -> str:
    """The transport of an outgoing call, from the response that moved it on; empty if that was something else."""
    return sip_message.via_transport(received(state))


def fault_of_answer(state: Any) -> str:
    """What cannot be used in the keys of an answer to our offer, in a response or an ACK, as
    :func:`cc_tts.ua.guard.srtp_sdp.fault_of` says it; empty if nothing, or if neither moved the call on.
    """
    return srtp_sdp.fault_of(received(state).partition("\r\n\r\n")[2])


def status_of_reinvite(state: Any) -> int:
    """The final status of an INVITE of ours that this event is about, told once; 0 if it is about anything else."""
    change = _own_invite(state)
    if change is None or change.prevState >= pj.PJSIP_TSX_STATE_COMPLETED:
        return 0
    return int(change.tsx.statusCode) if change.tsx.state >= pj.PJSIP_TSX_STATE_COMPLETED else 0


def own_invite(state: Any) -> tuple[int, bool] | None:
    """Address of the transaction of an INVITE of ours that this event is about, and whether its final response is still to
    come; ``None`` if the event is about anything else. PJSIP reports an INVITE that it repeats with credentials or another
    session interval before it reports that the first one has its response.
    """
    change = _own_invite(state)
    if change is None:
        return None
    return int(change.tsx.pjTransaction), change.tsx.state < pj.PJSIP_TSX_STATE_COMPLETED


def _own_invite(state: Any) -> Any | None:
    """The change of state of an INVITE of ours, if the event is one."""
    if state.e.type != pj.PJSIP_EVENT_TSX_STATE:
        return None
    change = state.e.body.tsxState
    return change if change.tsx.role == pj.PJSIP_ROLE_UAC and change.tsx.method == "INVITE" else None


def received(state: Any) -> str:
    """The message that moved the call on; empty if it was none that came in."""
    event = state.e
    if event.type == pj.PJSIP_EVENT_RX_MSG:
        return sip_message.readable(event.body.rxMsg.rdata.wholeMsg)
    if event.type == pj.PJSIP_EVENT_TSX_STATE and event.body.tsxState.type == pj.PJSIP_EVENT_RX_MSG:
        return sip_message.readable(event.body.tsxState.src.rdata.wholeMsg)
    return ""
