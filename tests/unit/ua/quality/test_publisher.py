"""When a report is sent, sent again and given up; nothing is on a wire."""

import itertools
from types import SimpleNamespace
from typing import Any

import msgspec
import pjsua2 as pj
import pytest

from cc_tts.config.schema import Config, RegistrationConfig
from cc_tts.config.sections.quality import QualityConfig
from cc_tts.media.quality import Quality, VoipMetrics
from cc_tts.processes.channel import Message
from cc_tts.ua.client import settings_of
from cc_tts.ua.quality.publisher import MAX_INTERVALS_UNDER_WAY, MAX_UNDER_WAY, MAX_WAITING, RETRY_AFTER_S, Publisher
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

COLLECTOR = "sip:vq@collector.example.com"
(SETTINGS,) = settings_of(
    Config(
        registration=RegistrationConfig(username="greet", password="open sesame"),
        quality=QualityConfig(collector=COLLECTOR),
    )
)
CHALLENGED = 'SIP/2.0 401 Unauthorized\r\nWWW-Authenticate: Digest realm="vq", nonce="n", qop="auth"\r\n\r\n'
BUSY = "SIP/2.0 503 Service Unavailable\r\nRetry-After: 60 (soon)\r\n\r\n"


class Bench:
    def __init__(self, *, interval_s: int = 0) -> None:
        self.clock = FakeClock()
        self.requests: list[Any] = []
        self.told: list[Message] = []
        self.account: Any = SimpleNamespace(sendRequest=self.requests.append)
        settings = msgspec.structs.replace(SETTINGS, quality=QualityConfig(collector=COLLECTOR, interval_s=interval_s))
        self.publisher = Publisher(settings, clock=self.clock, account=lambda: self.account, send=self.told.append)

    def leg(self, call_id: str = "c", *, is_answered: bool = True, is_over: bool = False) -> Any:
        reports = SimpleNamespace(heard=VoipMetrics(), told=None, ssrcs=(1, 2), note=lambda *_, **__: None)
        media = SimpleNamespace(
            quality=Quality,
            reports=reports,
            packets=None,
            waited_ms=(0, 0),
            rtp_addresses=("127.0.0.1:4000", "127.0.0.1:5000"),
        )
        call = SimpleNamespace(
            sip_call_id="a@b",
            tags=("1", "2"),
            established_ns=self.clock.now_ns() if is_answered else 0,
            media=SimpleNamespace(codec="PCMU", clock_rate_hz=8000),
            invite=SimpleNamespace(caller="<sip:a@127.0.0.1>", callee="<sip:b@127.0.0.1>"),
        )
        return SimpleNamespace(call_id=call_id, is_over=is_over, snapshot=lambda: call, media=media)

    def call_over(self, *, is_answered: bool = True) -> None:
        self.publisher.call_over(self.leg(is_answered=is_answered))

    def watch(self, *legs: Any, for_s: int) -> list[int]:
        """Let the time pass as the user agent does; returns how many requests were sent in each second."""
        sent = []
        for _ in range(for_s):
            before = len(self.requests)
            self.clock.advance(1000)
            for leg in legs:
                self.publisher.watch(leg)
            self.publisher.tick()
            sent.append(len(self.requests) - before)
        return sent

    def until_report(self) -> None:
        leg = self.leg()
        while not any(self.watch(leg, for_s=1)):
            assert self.clock.now_ns() < 10**13

    def tick(self, after_s: float = 0.0) -> int:
        """Let the time pass; returns how many requests have been sent by then."""
        self.clock.advance(1000 * after_s)
        self.publisher.tick()
        return len(self.requests)

    def answer(self, sip_code: int, response: str = "") -> None:
        self.account.on_answer(int(self.requests[-1].userData), sip_code, response)

    def counts(self) -> dict[str, int]:
        self.publisher.report_counts()
        return dict(self.told.pop().counts) if self.told else {}  # type: ignore[attr-defined]


def header(request: Any, name: str) -> str:
    return next((each.hValue for each in request.txOption.headers if each.hName == name), "")


def test_a_report_that_is_taken() -> None:
    bench = Bench()
    bench.call_over(is_answered=False)
    assert bench.tick() == 0, "a call that was never answered is not reported"
    bench.call_over()
    assert bench.tick() == 1
    request = bench.requests[0]
    assert (request.method, header(request, "Event")) == ("PUBLISH", "vq-rtcpxr")
    assert request.txOption.targetUri == "sip:vq@collector.example.com"
    assert "CallID:a@b\r\n" in request.txOption.msgBody
    bench.answer(200, "SIP/2.0 200 OK\r\n\r\n")
    assert bench.counts() == {"accepted": 1}
    assert bench.counts() == {}


@pytest.mark.parametrize("at_the_end", [True, False])
def test_a_challenge_is_answered_once(*, at_the_end: bool) -> None:
    bench = Bench(interval_s=3600)
    if at_the_end:
        bench.call_over()
        bench.tick()
    else:
        bench.until_report()
    bench.answer(401, CHALLENGED)
    assert bench.tick() == 2
    assert header(bench.requests[1], "Authorization").startswith('Digest username="greet", realm="vq"')
    bench.answer(401, CHALLENGED)
    assert bench.tick(after_s=1000) == 2
    assert bench.counts() == {"refused": 1}


def test_a_silent_collector_is_asked_a_few_times() -> None:
    bench = Bench()
    bench.call_over()
    for number, pause_s in enumerate((0, *RETRY_AFTER_S), start=1):
        assert bench.tick(after_s=pause_s) == number
        bench.answer(408)
        assert bench.tick() == number, "not at once"
    assert bench.tick(after_s=1000) == len(RETRY_AFTER_S) + 1
    assert bench.counts() == {"unanswered": 1}


def test_a_collector_says_when_to_come_again() -> None:
    bench = Bench()
    bench.call_over()
    bench.tick()
    bench.answer(503, BUSY)
    assert bench.tick(after_s=59) == 1
    assert bench.tick(after_s=1) == 2


@pytest.mark.parametrize("status", ["404 Not Found", "489 Bad Event", "603 Decline"])
def test_any_other_refusal_is_the_last(status: str) -> None:
    bench = Bench()
    bench.call_over()
    bench.tick()
    bench.answer(int(status[:3]), f"SIP/2.0 {status}\r\n\r\n")
    assert bench.tick(after_s=1000) == 1
    assert bench.counts() == {"refused": 1}


def test_what_waits_is_bounded() -> None:
    bench = Bench()
    for _ in range(MAX_WAITING + 3):
        bench.call_over()
    assert bench.tick() == MAX_UNDER_WAY
    assert bench.counts() == {"dropped": 3}


@pytest.mark.parametrize("answer", [(401, CHALLENGED), (503, BUSY), (408, "")])
@pytest.mark.parametrize("collector", ["sip:vq@other.example.com", ""])
def test_a_report_under_way_goes_to_no_other_collector(collector: str, answer: tuple[int, str]) -> None:
    bench = Bench()
    bench.call_over()
    bench.tick()
    bench.publisher.reload(msgspec.structs.replace(SETTINGS, quality=QualityConfig(collector=collector)))
    bench.answer(*answer)
    assert bench.tick(after_s=1000) == 1
    assert bench.counts() == {"refused" if answer[1] else "unanswered": 1}
    bench.call_over()
    bench.publisher.reload(msgspec.structs.replace(SETTINGS, quality=QualityConfig()))
    assert bench.tick() == 1, "nor does one that waits"


@pytest.mark.parametrize("is_told_before", [False, True])
def test_a_report_that_pjsip_refuses_is_tried_again(*, is_told_before: bool) -> None:
    """PJSIP's pjsip_endpt_send_request ends the transaction, which tells of it, and then refuses the request."""
    bench = Bench()

    def refuse(request: Any) -> None:
        bench.requests.append(request)
        if is_told_before:
            bench.answer(503)
        raise pj.Error

    bench.account.sendRequest = refuse
    bench.call_over()
    assert bench.tick() == 1
    assert bench.tick(after_s=RETRY_AFTER_S[0]) == 2
    assert bench.tick(after_s=RETRY_AFTER_S[1]) == 3
    assert bench.counts() == {"unanswered": 1}


def test_a_call_that_goes_on_is_reported_once_in_an_interval() -> None:
    bench = Bench(interval_s=30)
    sent = bench.watch(bench.leg(), for_s=300)
    seconds = [second for second, some in enumerate(sent, start=1) if some]
    assert 15 <= seconds[0] <= 46
    assert {later - earlier for earlier, later in itertools.pairwise(seconds)} == {30}
    assert all(each.txOption.msgBody.startswith("VQIntervalReport\r\n") for each in bench.requests)


def test_only_calls_that_go_on_are_reported_before_their_end_and_with_an_interval_only() -> None:
    bench = Bench()
    assert not any(bench.watch(bench.leg(), for_s=600))
    bench = Bench(interval_s=5)
    assert not any(bench.watch(bench.leg("a", is_answered=False), bench.leg("b", is_over=True), for_s=60))


def test_calls_that_begin_together_are_not_reported_together() -> None:
    bench = Bench(interval_s=60)

    def take(request: Any) -> None:
        bench.requests.append(request)
        bench.answer(200, "SIP/2.0 200 OK\r\n\r\n")

    bench.account.sendRequest = take
    sent = bench.watch(*(bench.leg(str(number)) for number in range(600)), for_s=300)
    assert sum(sent[180:240]) == 600, "each once in an interval"
    assert max(sent) < 40, "10 are the mean; of a Poisson distribution with that mean 40 come 6 times in 10 ** 13"
    assert bench.counts() == {"accepted": sum(sent)}


def test_a_silent_collector_loses_no_report_of_an_end_to_those_before_it() -> None:
    bench = Bench(interval_s=5)
    sent = bench.watch(*(bench.leg(str(number)) for number in range(100)), for_s=20)
    assert sum(sent) == MAX_INTERVALS_UNDER_WAY
    assert bench.counts()["dropped"] > 100
    bench.call_over()
    assert bench.tick() == MAX_INTERVALS_UNDER_WAY + 1
    assert bench.requests[-1].txOption.msgBody.startswith("VQSessionReport: CallTerm\r\n")


@pytest.mark.parametrize(
    ("answer", "result"), [((408, ""), "unanswered"), ((503, BUSY), "refused"), ((489, BUSY), "refused")]
)
def test_a_report_before_the_end_is_not_sent_again(answer: tuple[int, str], result: str) -> None:
    bench = Bench(interval_s=3600)
    bench.until_report()
    bench.answer(*answer)
    assert bench.tick(after_s=300) == 1
    assert bench.counts() == {result: 1}


def test_another_interval_counts_from_when_it_is_read() -> None:
    bench = Bench(interval_s=3600)
    leg = bench.leg()
    bench.watch(leg, for_s=10)
    quality = QualityConfig(collector=COLLECTOR, interval_s=10)
    bench.publisher.reload(msgspec.structs.replace(SETTINGS, quality=quality))
    assert sum(bench.watch(leg, for_s=16)) in (1, 2), "after 5 to 15 s, and 10 s later"
    bench.publisher.reload(SETTINGS)
    assert not any(bench.watch(leg, for_s=100))
