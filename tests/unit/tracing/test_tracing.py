"""Trace contexts, which traces are kept, and how long spans wait for that."""

import pytest

from cc_tts.tracing.context import TraceContext
from cc_tts.tracing.span import CURRENT, MAX_EVENTS, MAX_HELD, Span, SumSpan, begin
from cc_tts.tracing.tracer import Tracer
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("header", "is_sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01-more", True),
    ],
)
def test_a_traceparent_names_a_span(header: str, is_sampled: bool) -> None:
    assert TraceContext.parse(header) == TraceContext(TRACE, SPAN, is_sampled)


@pytest.mark.parametrize(
    "header",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_what_is_no_traceparent_is_ignored(header: str) -> None:
    assert TraceContext.parse(header) is None


def test_what_is_named_is_read_again() -> None:
    for is_sampled in (True, False):
        context = TraceContext(TRACE, SPAN, is_sampled)
        assert TraceContext.parse(context.traceparent) == context


def test_without_an_exporter_nothing_begins() -> None:
    assert Tracer(FakeClock()).begin("call", kind="server") is None


def test_a_share_of_the_traces_is_kept_and_all_nodes_choose_the_same() -> None:
    one, other = (Tracer(FakeClock(), export=lambda _: None, sample_ratio=0.25) for _ in range(2))
    ids = [f"{number:032x}" for number in range(1 << 50, 1 << 56, (1 << 56) // 200)]
    kept = [trace_id for trace_id in ids if one.samples(trace_id)]
    assert kept == [trace_id for trace_id in ids if other.samples(trace_id)]
    assert 0.2 < len(kept) / len(ids) < 0.3


def test_what_waits_for_the_end_of_a_trace_is_bounded_and_in_order() -> None:
    exported: list[Span] = []
    root = Tracer(FakeClock(), export=exported.append, sample_ratio=0.0).begin("call", kind="server")
    assert root is not None
    for number in range(MAX_HELD + 5):
        root.child(str(number)).end()
    assert exported == []
    root.trace.keep()
    assert [span.name for span in exported] == [str(number) for number in range(5, MAX_HELD + 5)]
    root.end()
    root.end()
    assert exported[-1] is root
    assert len(exported) == MAX_HELD + 1


def test_a_trace_that_is_over_keeps_nothing() -> None:
    exported: list[Span] = []
    root = Tracer(FakeClock(), export=exported.append, sample_ratio=0.0).begin("call", kind="server")
    assert root is not None
    root.end()
    root.trace.close()
    root.trace.keep()
    assert exported == []


def test_the_events_of_a_span_are_bounded() -> None:
    root = Tracer(FakeClock(), export=lambda _: None).begin("call", kind="server")
    assert root is not None
    for _ in range(MAX_EVENTS + 5):
        root.event("call.dtmf")
    assert len(root.events) == MAX_EVENTS


def test_many_short_pieces_are_one_span_with_their_sum() -> None:
    clock, exported = FakeClock(), list[Span]()
    root = Tracer(clock, export=exported.append).begin("call", kind="server")
    resampling = SumSpan(root, "resample")
    for _ in range(3):
        resampling.begin()
        clock.advance(2)
        resampling.end()
        clock.advance(10)
    resampling.close()
    (span,) = exported
    assert span.attributes == {"cctts.sum_ms": 6.0}


def test_nothing_is_measured_where_nothing_is_traced() -> None:
    assert CURRENT.get() is None
    assert begin("text.normalize+chunk") is None
    resampling = SumSpan(None, "resample")
    resampling.begin()
    resampling.end()
    resampling.close()
