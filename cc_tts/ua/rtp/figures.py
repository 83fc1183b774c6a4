"""The RTCP figures of a leg, over all its streams. Runs on: the SIP thread."""

from typing import Any

import pjsua2 as pj

from cc_tts import logs
from cc_tts.media.quality import Quality, StreamFigures, VoipMetrics
from cc_tts.ua.pjsip.sip_thread import pj_detail

log = logs.get(__name__)


class CallFigures:
    """Adds up the RTCP figures of the streams of a call (RFC 3550 §6.4)."""

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id
        self._ended = StreamFigures()
        self._current = StreamFigures()
        self.num_discarded = 0
        """The packets of the latest stream that PJMEDIA discarded."""
        self.jitter_buffer_ms = (0, 0)
        """The mean and the longest delay of the latest stream's jitter buffer."""
        self.late_frames = 0
        """Counted by the port of the leg, as long as it has one."""

    def poll(self, call: Any, stream_index: int) -> None:
        try:
            stream_stat = call.getStreamStat(stream_index)
        except pj.Error as error:
            log.warning("no_figures", call_id=self._call_id, detail=pj_detail(error))
            return
        stat = stream_stat.rtcp  # SWIG frees it with stream_stat, to which it does not refer
        jitter = stat.rxStat.jitterUsec
        self._current = StreamFigures(
            packets_sent=stat.txStat.pkt,
            packets_received=stat.rxStat.pkt,
            packets_lost=stat.rxStat.loss,
            num_jitters=jitter.n,
            mean_jitter_ms=jitter.mean / 1000,
            round_trip_ms=stat.rttUsec.last / 1000 if stat.rttUsec.n else None,
        )
        self.num_discarded = int(stat.rxStat.discard)
        self.jitter_buffer_ms = int(stream_stat.jbuf.avgDelayMsec), int(stream_stat.jbuf.maxDelayMsec)

    def stream_ended(self) -> None:
        """The latest stream has ended; the next one begins at 0."""
        self._ended, self._current = self._ended.then(self._current), StreamFigures()

    def quality(self, *, underruns: int, remote: VoipMetrics | None) -> Quality:
        figures = self._ended.then(self._current)
        return figures.quality(underruns=underruns, late_frames=self.late_frames, remote=remote)
