"""What pjsua2 says, in our messages' words. Runs on: the SIP thread."""

from typing import Any, Literal

import pjsua2 as pj

from cc_tts.ua.messages import MediaQuality
from cc_tts.ua.sip_thread import SipThread


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
    )


def audio_media(info: Any) -> Any | None:
    """The call's live audio among its m-lines, ``None`` if it has none; a rejected m-line may stand before it."""
    for media in info.media:
        if media.type == pj.PJMEDIA_TYPE_AUDIO and media.status != pj.PJSUA_CALL_MEDIA_NONE:
            return media
    return None


def dtmf_method(method: int) -> Literal["rfc4733", "sip_info"]:
    """How a digit came in."""
    return "sip_info" if method == pj.PJSUA_DTMF_METHOD_SIP_INFO else "rfc4733"
