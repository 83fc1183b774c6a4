"""What a probe tells: figures, and what was out of the ordinary in words."""

from dataclasses import replace

import msgspec
import pytest

from cc_tts.callreport.page import render
from cc_tts.softphone.probe.caller import Expired, Wait
from cc_tts.softphone.probe.picture import picture_of_probe
from cc_tts.softphone.probe.plan import ProbePlan
from cc_tts.softphone.probe.report import CutWord, DetectorReport, ProbeReport, probe_report
from cc_tts.softphone.probe.turns import Stretch, Turn
from cc_tts.softphone.report import RtpReport, SoftphoneEnding, SoftphoneReport
from tests.support.call_reports import call_report

pytestmark = pytest.mark.unit

MS = 1_000_000
T0_NS = 5_000 * MS
SPOKEN = (Stretch(240, 2000), Stretch(5000, 6500))
TURN = Turn(
    what="speech",
    begin_ms=6000,
    end_ms=8000,
    is_interruption=True,
    is_talked_over=False,
    stop_ms=500,
    response_ms=4000,
    silence_ms=4000,
)
KEY = Turn(
    what="key",
    begin_ms=15_000,
    end_ms=15_000,
    is_interruption=False,
    is_talked_over=False,
    stop_ms=None,
    response_ms=None,
    silence_ms=5000,
)


def call(
    *, ending: SoftphoneEnding | None = None, answered_at_ns: int | None = T0_NS, first_rtp_ms: float = 20
) -> SoftphoneReport:
    is_answered = answered_at_ns is not None
    return call_report(
        uri="sip:bot@pbx",
        ending=ending or SoftphoneEnding("completed", "us", 200, "OK"),
        invite_at_ns=T0_NS - 100 * MS,
        answered_at_ns=answered_at_ns,
        ended_at_ns=T0_NS + 20_000 * MS,
        answered_ms=100.0 if is_answered else None,
        talk_ms=20_000.0 if is_answered else None,
        first_rtp_at_ns=T0_NS + round(first_rtp_ms * MS),
        rtp=RtpReport(packets=990, lost=10, jitter_ms=1.5, round_trip_ms=20.0, mos=4.2),
    )


def probe(
    report: SoftphoneReport,
    *turns: Turn,
    agent: tuple[Stretch, ...] = SPOKEN,
    cuts: tuple[CutWord, ...] = (),
    waits: tuple[tuple[Wait, float], ...] = (),
    is_over: bool = True,
) -> ProbeReport:
    """A report; ``waits`` were in vain, 12 s after the answer."""
    expired = [Expired(wait, T0_NS + 12_000 * MS, bound_s) for wait, bound_s in waits]
    detector = DetectorReport(begin_error_ms=(12.0, -3.0), end_error_ms=(40.0, 8.0))
    return probe_report(
        report,
        plan=ProbePlan(),
        agent=agent,
        turns=turns,
        cuts=cuts,
        is_over=is_over,
        expired=expired,
        remarks=[],
        detector=detector,
    )


def test_the_figures_of_a_call() -> None:
    found = probe(call(), TURN, KEY, cuts=(CutWord(2000.0, "abrupt", 0.0), CutWord(5100.0, "lost", 20.0)))
    text = found.table()
    assert found.exit_code == 0
    assert found.findings == []
    for part in (
        "answer to first speech   240 ms",
        "response time            p50 4000 ms, p95 4000 ms, of 1",
        "stop after interruption  p50 500 ms",
        "dead air over 3 s        p50 4000 ms, p95 4000 ms, of 1",
        "1 abrupt, 1 by lost packets, 0 by late ones",
        "990 received, 10 lost (1 %), jitter 1.5 ms, MOS 4.2",
        "begin -3 to +12 ms, end +8 to +40 ms",
    ):
        assert part in text


def test_the_document_says_what_its_figures_mean() -> None:
    document = msgspec.json.decode(msgspec.json.encode(probe(call(), TURN)))
    assert set(document["definitions"]) - {"packets", "percentiles", "talked_over"} <= set(document)
    assert all(each["means"] and each["source"] for each in document["definitions"].values())
    assert document["dead_air_ms"]["bound_ms"] == 3000
    assert document["stop_ms"]["values"] == [500]


def test_an_agent_that_never_speaks_is_a_failure() -> None:
    found = probe(call(), agent=(), waits=(("greeting", 10.0), ("answer", 10.0)))
    assert found.exit_code == 1
    assert found.first_speech_ms is None
    assert found.dead_air_ms.spread.values == (20_000.0,)
    assert found.findings == [
        "the agent never spoke: 990 packets came, and none with speech",
        "no greeting within 10 s of the answer",
        "no answer within 10 s, at 12.0 s",
    ]


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        ("end of the greeting", "the greeting was not over after 4 s: the caller spoke into it"),
        ("stop", "the agent did not stop within 4 s of an interruption, at 12.0 s"),
        ("end of the answer", "an answer was not over after 4 s, at 12.0 s: the caller went on"),
        ("words", "the caller's words could not be sent within 4 s: is the call on hold?"),
    ],
)
def test_a_wait_in_vain_is_told(wait: Wait, words: str) -> None:
    assert probe(call(), TURN, waits=((wait, 4.0),)).findings == [words]


def test_an_agent_that_does_not_stop_is_counted() -> None:
    found = probe(call(), replace(TURN, stop_ms=None, response_ms=None))
    assert found.num_not_stopped == 1
    assert "none, 1 not stopped" in found.table()


def test_an_agent_that_is_busy_is_a_failure() -> None:
    found = probe(
        call(ending=SoftphoneEnding("refused", "them", 486, "Busy Here"), answered_at_ns=None, first_rtp_ms=30_000),
        agent=(),
    )
    assert found.exit_code == 1
    assert found.findings == ["the agent did not answer: refused, 486 Busy Here"]
    assert found.dead_air_ms.spread.count == 0


@pytest.mark.parametrize(
    ("turns", "words"),
    [((), "before the caller did anything"), ((TURN, KEY), "after 2 of the caller's turns")],
)
def test_an_agent_that_hangs_up_is_told(turns: tuple[Turn, ...], words: str) -> None:
    found = probe(call(ending=SoftphoneEnding("completed", "them", 200, "OK")), *turns)
    assert found.findings == [f"the agent hung up 20.0 s after the answer, {words}"]


def test_a_call_that_ends_before_the_conversation_is_told() -> None:
    assert probe(call(), TURN, is_over=False).findings == [
        "the caller had to hang up 20.0 s after the answer, before it was done"
    ]


@pytest.mark.parametrize(("begin_ms", "words"), [(-80, "with speech"), (300, "without speech")])
def test_early_media_is_told(begin_ms: float, words: str) -> None:
    found = probe(call(first_rtp_ms=-90), TURN, agent=(Stretch(begin_ms, 2000),))
    assert found.findings == [f"audio came before the answer (early media), {words}"]
    assert found.first_speech_ms == max(0, begin_ms)


def test_an_agent_that_speaks_before_the_answer_alone_is_told() -> None:
    found = probe(call(first_rtp_ms=-1000), TURN, agent=(Stretch(-900, -80),))
    assert found.exit_code == 1
    assert found.findings == [
        "audio came before the answer (early media), with speech",
        "the agent never spoke: 990 packets came, and none with speech after the answer",
    ]


def test_the_page_shows_turns_stops_and_cuts() -> None:
    late = replace(TURN, begin_ms=16_000, end_ms=17_000, stop_ms=None, response_ms=None, is_talked_over=True)
    found = probe(call(), TURN, KEY, late, cuts=(CutWord(2000.0, "abrupt", 0.0),))
    page = render(picture_of_probe(found, heard=None, said=None))
    for part in ("Probe of sip:bot@pbx", "interrupts", ">500 ms<", ">4000 ms<", "did not stop", ">abrupt<"):
        assert part in page
    for part in ("spoke over the caller", "arXiv 2507.23159", "caller speaks", "agent speaks", "talked_over"):
        assert part in page
