"""Keeps the record of one call up to date in the UA process. Runs on: the event loop."""

from cc_tts.calls.adoption import record as records
from cc_tts.calls.call_state import CallState
from cc_tts.calls.follower import CallView
from cc_tts.calls.recording.recorder import CallRecorder
from cc_tts.calls.transfers.bridge import CallBridge
from cc_tts.calls.transfers.handover import Handover
from cc_tts.ua import messages


class RecordKeeper:
    """Has the UA process keep what another server would need to adopt a call."""

    def __init__(self, call: CallView, recorder: CallRecorder, handover: Handover, bridge: CallBridge) -> None:
        self._call = call
        self._recorder, self._handover, self._bridge = recorder, handover, bridge
        self._kept = b""

    def record(self) -> records.CallRecord:
        call = self._call
        return records.CallRecord(
            version=records.VERSION,
            run=call.services.events.run,
            utterances=tuple(map(records.KeptUtterance.of, call.player.queue[: records.MAX_UTTERANCES])),
            gather=call.keys.kept,
            transfer=self._handover.kept,
            bridge=self._bridge.kept,
            recording=self._recorder.current,
            **records.without_text(call.headers, call.uri_parameters),
            **{name: getattr(call, name) for name in (*records.FACTS, *records.PROGRESS)},
        )

    def keep(self) -> None:
        """Send the record if it has changed."""
        services = self._call.services
        if services.config.ua.orphan_grace_ms and self._call.state is not CallState.TERMINATED:
            before, self._kept = self._kept, records.encode(self.record())
            if before != self._kept:
                services.ua.tell(messages.KeepRecord(call_id=self._call.id, record=self._kept))
