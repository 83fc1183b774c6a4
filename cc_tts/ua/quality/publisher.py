"""Sends reports of each call to a collector by PUBLISH (RFC 6035, RFC 3903). No call waits for them. Runs on: the SIP
thread.

A challenge is answered once, with the credentials of ``[registration]``. The report of a call's end that gets no answer, or
5xx, is tried again a few times; any other refusal is its last. A report during a call goes out once or is dropped: the next
one says all that it says.
"""

import collections
import heapq
import itertools
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pjsua2 as pj

from cc_tts import logs
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.processes.channel import Message
from cc_tts.ua import messages
from cc_tts.ua.guard import digest
from cc_tts.ua.guard.limits import address_of
from cc_tts.ua.pjsip import pj_info
from cc_tts.ua.pjsip.sip_thread import pj_detail
from cc_tts.ua.quality import vq_report
from cc_tts.ua.sip import message as sip_message
from cc_tts.ua.sip import uri as sip_uri
from cc_tts.ua.sip.account import Account

MAX_WAITING: Final = 1000
"""The most calls whose reports wait; further ones are dropped and counted (unmeasured)."""
MAX_UNDER_WAY: Final = 32
"""The most transactions at once: a silent collector holds each for 32 s, timer F of RFC 3261 §17.1.2.2 (unmeasured)."""
MAX_INTERVALS_UNDER_WAY: Final = MAX_UNDER_WAY // 2
"""The most transactions for interval reports; the others are kept for the ends of calls (unmeasured)."""
FIRST_INTERVAL: Final = (0.5, 1.5)
"""The first report of a call comes after a random share of the interval between these, so that calls that begin together are
not reported together (as RTCP, RFC 3550 §6.2).
"""
RETRY_AFTER_S: Final = (5, 30)
"""The pauses before another try (unmeasured)."""
MAX_RETRY_AFTER_S: Final = 300
"""The longest pause that a collector may ask for (unmeasured)."""
_CHALLENGES: Final = {401: ("WWW-Authenticate", "Authorization"), 407: ("Proxy-Authenticate", "Proxy-Authorization")}

log = logs.get(__name__)


@dataclass(slots=True, eq=False)
class _Report:
    """A report on its way to a collector."""

    target: str
    body: str
    is_over: bool
    """Whether the call has ended."""
    num_failures: int = 0
    credentials: tuple[str, str] | None = None
    token: Any = field(default_factory=pj.SipHeader)
    """PJSIP returns the address of this with the answer."""


class Publisher:
    """Sends the reports of a user agent. ``account`` is used for requests that belong to no trunk."""

    def __init__(
        self,
        settings: messages.UaSettings,
        *,
        clock: Clock,
        account: Callable[[], Account],
        send: Callable[[Message], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._account = account
        self._send = send
        self._waiting: list[tuple[int, int, _Report]] = []
        self._serials = itertools.count()
        self._under_way: dict[int, _Report] = {}
        self._due_ns: dict[str, int] = {}
        self._counts: collections.Counter[messages.PublishResult] = collections.Counter()

    def reload(self, settings: messages.UaSettings) -> None:
        if settings.quality.collector != self._settings.quality.collector:
            self._waiting.clear()
        if settings.quality.interval_s != self._settings.quality.interval_s:
            self._due_ns.clear()
        self._settings = settings

    def watch(self, leg: Any) -> None:
        """Report a running call once in an interval. Called once a second."""
        interval_ns = NS_PER_S * self._settings.quality.interval_s
        if not (interval_ns and self._settings.quality.collector) or leg.is_over:
            return
        now_ns = self._clock.now_ns()
        if leg.call_id not in self._due_ns:
            share = random.uniform(*FIRST_INTERVAL)  # noqa: S311 - a moment, not a secret
            self._due_ns[leg.call_id] = now_ns + round(interval_ns * share)
        if now_ns < self._due_ns[leg.call_id]:
            return
        self._due_ns[leg.call_id] += interval_ns * (1 + (now_ns - self._due_ns[leg.call_id]) // interval_ns)
        if (facts := self._facts_of(leg)) is None:
            return
        if len(self._under_way) >= MAX_INTERVALS_UNDER_WAY:
            self._counts["dropped"] += 1
            return
        self._publish(_Report(self._target, vq_report.body(facts, is_over=False), is_over=False))

    def call_over(self, leg: Any) -> None:
        self._due_ns.pop(leg.call_id, None)
        if not self._settings.quality.collector or (facts := self._facts_of(leg, is_over=True)) is None:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._counts["dropped"] += 1
            return
        self._wait(_Report(self._target, vq_report.body(facts, is_over=True), is_over=True), 0)

    def tick(self) -> None:
        now_ns = self._clock.now_ns()
        while self._waiting and self._waiting[0][0] <= now_ns and len(self._under_way) < MAX_UNDER_WAY:
            self._publish(heapq.heappop(self._waiting)[2])

    @property
    def used_account(self) -> Account | None:
        """The account of the reports under way; ``None`` if there are none."""
        return self._account() if self._under_way else None

    def report_counts(self) -> None:
        """Report how many were sent since the last time, by result."""
        if self._counts:
            self._send(messages.ReportsPublished(counts=dict(self._counts)))
            self._counts.clear()

    def _facts_of(self, leg: Any, *, is_over: bool = False) -> vq_report.Facts | None:
        call, media = leg.snapshot(), leg.media
        if not call.established_ns or call.media is None:
            return None
        quality = media.quality()
        if is_over:  # during the call the leg notes it each second
            media.reports.note(media.packets, quality, jitter_buffer_ms=media.waited_ms)
        now_s = self._clock.wall_s()
        if call.invite is not None:
            local, remote = map(sip_message.uri_of, (call.invite.callee, call.invite.caller))
        else:
            local, remote = leg.originate.from_ or self._settings.account_uri, leg.originate.to
        return vq_report.Facts(
            sip_call_id=call.sip_call_id,
            tags=call.tags,
            local=local,
            remote=remote,
            is_incoming=call.invite is not None,
            addresses=(address_of(media.rtp_addresses[0]), address_of(media.rtp_addresses[1])),
            ssrcs=media.reports.ssrcs,
            began_s=now_s - (self._clock.now_ns() - call.established_ns) / NS_PER_S,
            until_s=now_s,
            codec=call.media.codec,
            clock_rate_hz=call.media.clock_rate_hz,
            heard=media.reports.heard,
            jitter_ms=quality.jitter_ms,
            told=media.reports.told,
        )

    def _wait(self, report: _Report, delay_s: int) -> None:
        due_ns = self._clock.now_ns() + NS_PER_S * delay_s
        heapq.heappush(self._waiting, (due_ns, next(self._serials), report))

    @property
    def _target(self) -> str:
        return sip_uri.with_transport(self._settings.quality.collector, self._settings.sip.transports)

    def _publish(self, report: _Report) -> None:
        request = pj.SendRequestParam()
        request.method = "PUBLISH"
        request.userData = report.token
        options = request.txOption
        options.targetUri, options.contentType, options.msgBody = report.target, vq_report.CONTENT_TYPE, report.body
        headers = {"Event": vq_report.EVENT} | dict([report.credentials] if report.credentials else [])
        pj_info.add_headers(request, headers)
        account = self._account()
        account.on_answer = self._on_answer
        self._under_way[int(report.token.this)] = report
        try:
            account.sendRequest(request)
        except pj.Error as error:
            log.warning("quality_report_not_sent", detail=pj_detail(error))
            self._on_answer(int(report.token.this), 0, "")  # no effect if PJSIP has called it before it raised

    def _on_answer(self, token: int, sip_code: int, response: str) -> None:
        """Handle the collector's response; 408 with an empty ``response`` means that there was none."""
        report = self._under_way.pop(token, None)
        if report is None:
            return
        if sip_code // 100 == 2:  # noqa: PLR2004 - the class of the status (RFC 3261 §7.2)
            self._counts["accepted"] += 1
        elif sip_code in _CHALLENGES and report.credentials is None and self._authorize(report, sip_code, response):
            self._wait(report, 0)
        else:
            self._failed(report, sip_code, response)

    def _authorize(self, report: _Report, sip_code: int, response: str) -> bool:
        """Answer a challenge of the present collector, if we have credentials for it."""
        if report.target != self._target:
            return False
        asked, answered = _CHALLENGES[sip_code]
        known = self._settings.registration
        for challenge in sip_message.header_values(response, asked.lower()) if known.username else ():
            once = secrets.token_hex(8)
            answer = digest.answer_to(challenge, known, method="PUBLISH", uri=report.target, cnonce=once)
            if answer is not None:
                report.credentials = answered, answer
                return True
        return False

    def _failed(self, report: _Report, sip_code: int, response: str) -> None:
        may_help = not response or sip_code // 100 == 5  # noqa: PLR2004 - the class of the status (RFC 3261 §7.2)
        if report.is_over and may_help and report.num_failures < len(RETRY_AFTER_S) and report.target == self._target:
            pause_s = RETRY_AFTER_S[report.num_failures]
            pause_s = max(pause_s, min(sip_message.retry_after_s(response) or 0, MAX_RETRY_AFTER_S))
            report.num_failures += 1
            report.credentials = None
            self._wait(report, pause_s)
            return
        if report.is_over:  # the others are counted only: there may be many each second
            log.warning("quality_report_failed", sip_code=sip_code)
        self._counts["refused" if response else "unanswered"] += 1
