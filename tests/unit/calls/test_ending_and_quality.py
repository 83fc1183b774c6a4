"""How an ending is sorted, and what the E-model makes of loss and delay."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.calls.ending import Ending, ending_of, q850_cause
from cc_tts.media.quality import Quality, StreamFigures, mean_opinion_score
from cc_tts.ua.messages import CallEnded, EndedBy
from cc_tts.ua.sip.reason import RemoteReason

pytestmark = pytest.mark.unit

CEILING = 4.41
"""R = 93.2 is 4.41: no G.711 call is better."""


@pytest.mark.parametrize(
    ("established", "ended_by", "sip_code", "local_reason", "direction", "result", "reason"),
    [
        # answered calls
        (True, "remote", 200, None, "inbound", "completed", "remote_hangup"),
        (True, "remote", 200, None, "outbound", "completed", "remote_hangup"),
        (True, "local", 200, None, "inbound", "completed", "local_hangup"),
        (True, "local", 200, "prompt_finished", "inbound", "completed", "prompt_finished"),
        (True, "local", 200, "prompt_failed", "inbound", "failed", "prompt_failed"),
        (True, "local", 200, "max_duration", "outbound", "completed", "max_duration"),
        (True, "failure", 408, None, "inbound", "failed", "no_response"),
        (True, "failure", 408, "local_hangup", "inbound", "failed", "no_response"),
        (True, "rtp_inactivity", 200, None, "inbound", "failed", "rtp_inactivity"),
        (False, "rtp_inactivity", 200, None, "outbound", "failed", "rtp_inactivity"),
        (True, "not_acceptable", 488, None, "outbound", "failed", "not_acceptable"),
        # inbound, not answered
        (False, "remote", 487, None, "inbound", "unanswered", "cancelled"),
        (False, "remote", 200, None, "inbound", "unanswered", "remote_hangup"),
        (False, "failure", 408, None, "inbound", "failed", "no_ack"),
        (False, "failure", 487, None, "inbound", "unanswered", "cancelled"),
        (False, "local", 486, None, "inbound", "rejected", "declined"),
        (False, "local", 404, "not_found", "inbound", "rejected", "not_found"),
        (False, "local", 480, "not_answered", "inbound", "rejected", "not_answered"),
        # outbound, not answered
        (False, "local", 487, None, "outbound", "unanswered", "cancelled"),
        (False, "local", 487, "no_answer", "outbound", "unanswered", "no_answer"),
        (False, "remote", 408, None, "outbound", "unanswered", "no_answer"),
        (False, "remote", 487, None, "outbound", "unanswered", "cancelled"),
        (False, "remote", 401, None, "outbound", "rejected", "auth_failed"),
        (False, "remote", 403, None, "outbound", "rejected", "forbidden"),
        (False, "remote", 404, None, "outbound", "rejected", "not_found"),
        (False, "remote", 407, None, "outbound", "rejected", "auth_failed"),
        (False, "full", 503, None, "outbound", "failed", "overload"),
        (False, "remote", 415, None, "outbound", "rejected", "not_acceptable"),
        (False, "remote", 480, None, "outbound", "rejected", "unavailable"),
        (False, "remote", 486, None, "outbound", "rejected", "busy"),
        (False, "remote", 488, None, "outbound", "rejected", "not_acceptable"),
        (False, "remote", 302, None, "outbound", "rejected", "redirected"),
        (False, "remote", 399, None, "outbound", "rejected", "redirected"),
        (False, "local", 302, None, "inbound", "rejected", "declined"),
        (False, "remote", 499, None, "outbound", "rejected", "sip_error"),
        (False, "remote", 600, None, "outbound", "rejected", "busy"),
        (False, "remote", 603, None, "outbound", "rejected", "declined"),
        (False, "failure", 500, None, "outbound", "failed", "sip_error"),
        (False, "failure", 503, None, "outbound", "failed", "overload"),
        (False, "failure", 599, None, "outbound", "failed", "sip_error"),
    ],
)
def test_ending(
    *,
    established: bool,
    ended_by: EndedBy,
    sip_code: int,
    local_reason: str | None,
    direction: str,
    result: str,
    reason: str,
) -> None:
    ended = CallEnded("c", sip_code, ended_by, Quality())
    ending = ending_of(ended, was_established=established, local_reason=local_reason, direction=direction)
    assert (ending.result, ending.reason, ending.sip_code) == (result, reason, sip_code)


@given(
    established=st.booleans(),
    ended_by=st.sampled_from(("local", "remote", "failure", "rtp_inactivity", "not_acceptable")),
    sip_code=st.integers(0, 699),
    direction=st.sampled_from(("inbound", "outbound")),
)
def test_every_report_has_an_ending(*, established: bool, ended_by: EndedBy, sip_code: int, direction: str) -> None:
    ended = CallEnded("c", sip_code, ended_by, Quality())
    ending = ending_of(ended, was_established=established, local_reason=None, direction=direction)
    assert isinstance(ending, Ending)
    assert ending.reason
    assert ending.reason.replace("_", "").isalpha(), "a closed set of words: it becomes a metric label"
    if established and ended_by in ("local", "remote"):
        assert ending.result == "completed"


def test_a_clean_call_is_close_to_the_ceiling() -> None:
    assert mean_opinion_score(loss=0, round_trip_ms=0) == pytest.approx(4.38, abs=0.01)
    assert mean_opinion_score(loss=0, round_trip_ms=40) > 4.3
    assert mean_opinion_score(loss=0.2, round_trip_ms=20) < 3


def test_delay_hurts_most_beyond_the_knee() -> None:
    at = {delay_ms: mean_opinion_score(loss=0, round_trip_ms=2 * delay_ms) for delay_ms in (0, 100, 200, 300)}
    assert at[0] - at[100] < at[200] - at[300]


@given(
    loss=st.floats(0, 0.25) | st.just(1.0),
    more_loss=st.floats(0, 0.05),
    delay_ms=st.floats(0, 5000),
    more_delay_ms=st.floats(0, 100),
)
def test_the_score_never_rises_with_loss_or_delay(
    loss: float, more_loss: float, delay_ms: float, more_delay_ms: float
) -> None:
    score = mean_opinion_score(loss=loss, round_trip_ms=delay_ms)
    assert 1 <= score <= CEILING
    assert mean_opinion_score(loss=loss + more_loss, round_trip_ms=delay_ms) <= score
    assert mean_opinion_score(loss=loss, round_trip_ms=delay_ms + more_delay_ms) <= score


def test_a_call_that_could_not_be_sent_has_no_status() -> None:
    ended = CallEnded("c", 503, "unreachable", Quality())
    ending = ending_of(ended, was_established=False, local_reason=None, direction="outbound")
    assert ending == Ending("failed", "unreachable", None)


def test_only_a_redirection_has_contacts() -> None:
    uris = ("sip:a@b", "tel:+1")
    ended = CallEnded("c", 302, "remote", Quality(), uris)
    ending = ending_of(ended, was_established=False, local_reason=None, direction="outbound")
    assert msgspec.to_builtins(ending)["contacts"] == uris
    assert msgspec.to_builtins(Ending("completed", "x", 200)) == {"result": "completed", "reason": "x", "sip_code": 200}


@pytest.mark.parametrize(
    ("ending", "established", "our_cause", "cause"),
    [
        (Ending("completed", "remote_hangup", 200), True, "", 16),
        (Ending("completed", "prompt_finished", 200), True, "normal", 16),
        (Ending("failed", "prompt_failed", 200), True, "error", 41),
        (Ending("completed", "draining", 200), True, "draining", 41),
        (Ending("failed", "rtp_inactivity", 200), True, "", 102),
        (Ending("failed", "no_response", 408), True, "", 102),
        (Ending("failed", "ua_process_died"), True, "", None),
        (Ending("rejected", "busy", 486), False, "", 17),
        (Ending("rejected", "not_found", 404), False, "", 1),
        (Ending("unanswered", "no_answer", 408), False, "", 102),
        (Ending("failed", "overload", 503), False, "", 41),
        (Ending("unanswered", "cancelled", 487), False, "", None),
        (Ending("completed", "remote_hangup", 200, remote_reasons=(RemoteReason("Q.850", 21),)), True, "", 21),
        (Ending("rejected", "unavailable", 480, remote_reasons=(RemoteReason("Q.850", 20),)), False, "", 20),
        (Ending("rejected", "busy", 486, remote_reasons=(RemoteReason("SIP", 480),)), False, "", 17),
        (Ending("failed", "unreachable"), False, "", None),
    ],
)
def test_the_cause_of_q850(ending: Ending, established: bool, our_cause: str, cause: int | None) -> None:
    """RFC 3398 §8.2.6.1 for refusals; what our BYE names for calls that were up."""
    assert q850_cause(ending, was_established=established, our_cause=our_cause) == cause


def test_the_reasons_of_the_far_side_go_with_every_kind_of_ending() -> None:
    reasons = (RemoteReason("Q.850", 21, "CALL_REJECTED"),)
    for established, ended_by, sip_code in ((True, "remote", 200), (False, "remote", 603), (False, "remote", 487)):
        ended = CallEnded("c", sip_code, ended_by, Quality(), remote_reasons=reasons)  # type: ignore[arg-type]
        found = ending_of(ended, was_established=established, local_reason=None, direction="outbound")
        assert found.remote_reasons == reasons
    plain = ending_of(
        CallEnded("c", 200, "remote", Quality()), was_established=True, local_reason=None, direction="inbound"
    )
    assert "remote_reasons" not in msgspec.to_builtins(plain), "left out where the far side gave none"


def test_figures_of_streams_add_up() -> None:
    before = StreamFigures(
        packets_sent=100, packets_received=90, packets_lost=10, num_jitters=80, mean_jitter_ms=4.0, round_trip_ms=30.0
    )
    after = StreamFigures(packets_sent=30, packets_received=30, num_jitters=20, mean_jitter_ms=1.0)
    quality = before.then(after).quality(underruns=2, late_frames=3)
    assert (quality.packets_sent, quality.packets_received, quality.packets_lost) == (130, 120, 10)
    assert quality.jitter_ms == 3.4, "the mean of all measurements, not of the streams"
    assert quality.round_trip_ms == 30.0, "the last one that was measured"
    assert quality.mos == mean_opinion_score(loss=10 / 130, round_trip_ms=30.0)
    assert (quality.underruns, quality.late_frames) == (2, 3)


def test_a_stream_that_measured_nothing_takes_nothing_away() -> None:
    only = StreamFigures(
        packets_sent=5, packets_received=5, packets_lost=1, num_jitters=3, mean_jitter_ms=2.0, round_trip_ms=10.0
    )
    assert only.then(StreamFigures()) == only
    assert StreamFigures().then(only) == only
    assert StreamFigures().quality(underruns=0, late_frames=0) == Quality()
