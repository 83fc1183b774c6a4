"""The source and the destination of a leg's RTP. Runs on: the SIP thread.

The server build of pjsua2 takes RTP from one source and discards the rest (``sip/pjproject/patches/0002-rtp-latch.patch``).
Others follow whoever sends ten packets (RFC 4961 without the latch of RFC 7362): there a change can only be reported.
"""

from typing import Any, Final

from cc_tts import logs
from cc_tts.ua.guard.limits import address_of

REPORT_DISCARDED: Final = 50
"""The packets, one second of RTP, that are discarded before it is reported: they come from elsewhere, or have an unusable
payload type; unmeasured.
"""

log = logs.get(__name__)


class RtpSourceWatch:
    """Reports once for each call that RTP comes from elsewhere, or that it is not heard. ``follows_rtp``: the build then
    also sends to the new source.
    """

    def __init__(self, call_id: str, *, follows_rtp: bool) -> None:
        self._call_id = call_id
        self._follows_rtp = follows_rtp
        self._source = ""
        self._reported = self._reported_discarded = False

    def new_stream(self) -> None:
        """Media was negotiated again, so RTP may come from elsewhere now."""
        self._source = ""

    def poll(self, call: Any, stream_index: int, *, num_discarded: int) -> None:
        """Check a leg with a stream; ``num_discarded`` packets were discarded so far."""
        if num_discarded >= REPORT_DISCARDED and not self._reported_discarded:
            self._reported_discarded = True
            log.warning("rtp_discarded", call_id=self._call_id, packets=num_discarded)
        if self._reported or not self._follows_rtp:
            return
        source = call.getMedTransportInfo(stream_index).srcRtpName
        if not address_of(source)[1]:
            return  # nothing has come yet
        if self._source not in ("", source):
            self._reported = True
            log.warning("rtp_source_changed", call_id=self._call_id, was=self._source, now=source)
        self._source = source
