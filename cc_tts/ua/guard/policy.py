"""Who may call: which peers are accepted, how many requests of each, and who needs a password. No pjsua2 here.

A peer that is not allowed gets no response: scanners give up such addresses, and a response to a forged source address
would go to a third party. A peer over its limit gets 503 (RFC 3261 §21.5.4) for INVITEs, at most as many a second as it may
send requests.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from cc_tts.clock import Clock
from cc_tts.ua.guard.digest import Credentials, DigestGuard, DigestResult, MalformedCredentials, parse_credentials
from cc_tts.ua.guard.limits import PeerList, SourceLimits, Verdict, source_of
from cc_tts.ua.messages import RefusedCause, UaSettings
from cc_tts.ua.sip import message as sip_message
from cc_tts.ua.sip.uri import fault_of_target

MAX_WRONG_ANSWERS: Final = 10
"""After this many wrong passwords in :data:`WRONG_ANSWERS_WINDOW_S` a user name of a source gets 403; unmeasured."""
MAX_WRONG_ANSWERS_OF_A_SOURCE: Final = 100
"""The same for all names of a source: many phones may share an address, and one of them may have an old password;
unmeasured.
"""
WRONG_ANSWERS_WINDOW_S: Final = 60.0  # unmeasured
MAX_AUTHORIZATIONS: Final = 4
"""The most Authorization headers of a request; there may be one for each realm (RFC 3261 §22.1)."""
MAX_SOURCES_REPORTED: Final = 5
"""The most sources that one log line names; unmeasured."""
_BAD_REQUEST: Final = 400
_TARGETING: Final = ("INVITE", "UPDATE")
"""The methods whose Contact determines where our requests go (RFC 3261 §12.1.1, §12.2.2)."""


@dataclass(frozen=True, slots=True)
class RefusalResponse:
    """The response that refuses a request; ``code`` 0: no response."""

    code: int
    headers: tuple[tuple[str, str], ...] = ()
    reason: str = ""


_SILENCE: Final = RefusalResponse(0)
_TOO_LONG: Final = RefusalResponse(513)


@dataclass(slots=True)
class RefusedRequests:
    """The number of requests that were refused for one cause since the last report, and some of their sources."""

    count: int = 0
    sources: set[str] = field(default_factory=set)


class InboundPolicy:
    """Accepts or refuses requests. Runs on: the SIP thread."""

    def __init__(self, settings: UaSettings, *, clock: Clock, max_message_bytes: int) -> None:
        auth = settings.auth
        self._max_message_bytes = max_message_bytes
        self._settings = settings
        self._clock = clock
        self._allowed = PeerList(settings.sip.allowed_peers)
        self._trusted = PeerList(settings.sip.trusted_peers)
        self._exempt = PeerList(auth.exempt_peers)
        self._limits = SourceLimits(per_s=settings.sip.max_requests_per_source_s, clock=clock)
        window_s = WRONG_ANSWERS_WINDOW_S
        self._wrong_by_user = SourceLimits(per_s=MAX_WRONG_ANSWERS / window_s, burst_s=window_s, clock=clock)
        self._wrong_by_source = SourceLimits(
            per_s=MAX_WRONG_ANSWERS_OF_A_SOURCE / window_s, burst_s=window_s, clock=clock
        )
        self._digest = DigestGuard(auth, clock) if auth.users else None
        self.has_password = bool(settings.registration.registrar or settings.trunks)
        self._refused: dict[RefusedCause, RefusedRequests] = {}

    def reload(self, settings: UaSettings) -> None:
        """Apply new settings. Counters and challenges stay, unless their own settings have changed."""
        before = self._settings
        fresh = InboundPolicy(settings, clock=self._clock, max_message_bytes=self._max_message_bytes)
        self._settings = settings
        self._allowed, self._trusted, self._exempt = fresh._allowed, fresh._trusted, fresh._exempt
        if settings.sip.max_requests_per_source_s != before.sip.max_requests_per_source_s:
            self._limits = fresh._limits
        if settings.auth != before.auth:
            self._digest = fresh._digest

    @property
    def is_closed(self) -> bool:
        """Whether some callers are refused, so that a request that cannot be checked must not pass."""
        return bool(self._allowed) or self._digest is not None

    def on_request(
        self, method: str, host: str, message: str, *, in_dialog: Callable[[], bool]
    ) -> RefusalResponse | None:
        """Check a request other than ACK when it arrives; ``None`` lets it pass. ``in_dialog`` is called only if needed.
        Requests in a dialog pass, since the far side of a call that we place need not be an allowed peer, and tags cannot be
        guessed (RFC 3261 §19.3).
        """
        if sip_message.is_answered_elsewhere(message, host):
            return self._refuse("malformed", host, _SILENCE)
        is_ambiguous = sip_message.is_ambiguous(message)

        def is_new() -> bool:
            return is_ambiguous or not in_dialog()

        if self._allowed and host not in self._allowed:
            return self._refuse("peer", host, _SILENCE) if is_new() else None
        if (refusal := self._over_limit(method, host, is_new)) is not None:
            return refusal
        if self._is_cut(message):
            return self._refuse("too_long", host, _TOO_LONG)
        refusal = _unusable(method, message, self._settings.sip.transports, is_ambiguous=is_ambiguous)
        if refusal is not None and refusal.code == _BAD_REQUEST:
            return self._refuse("malformed", host, refusal)
        return refusal

    def _is_cut(self, message: str) -> bool:
        """Whether it fills PJSIP's buffer, so that the rest of a datagram is lost."""
        return len(message) > self._max_message_bytes // 4 and (
            len(message.encode("utf-8", "surrogateescape")) >= self._max_message_bytes
        )

    def on_dropped(self, cause: RefusedCause, host: str) -> bool:
        """Count a request that PJSIP drops; returns whether it gets an answer."""
        self._refuse(cause, host, _SILENCE)
        return (not self._allowed or host in self._allowed) and self._over_limit("", host, lambda: True) is None

    def _over_limit(self, method: str, host: str, is_new: Callable[[], bool]) -> RefusalResponse | None:
        """Count a new request of a source with a limit; ``None`` lets it pass."""
        has_limit = self._settings.sip.max_requests_per_source_s and method != "CANCEL" and host not in self._trusted
        verdict = self._limits.ask(source_of(host)) if has_limit and is_new() else Verdict.TAKE
        if verdict is Verdict.TAKE:
            return None
        if verdict is Verdict.ANSWER and method == "OPTIONS":
            return None  # without a response a peer would take us for dead, and a 503 would mean that we are full
        if verdict is Verdict.ANSWER and method == "INVITE":
            return self._refuse(
                "rate", host, RefusalResponse(503, (("Retry-After", str(self._settings.sip.retry_after_s)),))
            )
        return self._refuse("rate", host, _SILENCE)

    def on_invite(self, host: str, message: str) -> RefusalResponse | None:
        """Check an INVITE outside a dialog; ``None`` if it has valid credentials, or needs none."""
        if self._digest is None or host in self._exempt:
            return None
        try:
            answers = _credentials(message)
        except MalformedCredentials as error:
            return self._refuse("malformed", host, RefusalResponse(_BAD_REQUEST, reason=f"Authorization: {error}"))
        source = source_of(host)
        tries = self._tries(source, answers)
        if answers and not all(limits.has_room(key) for limits, key in tries):
            return self._refuse("attempts", host, RefusalResponse(403))
        findings = [self._digest.verify(answer, method="INVITE", source=source) for answer in answers]
        if DigestResult.VALID in findings:
            self._limits.give_back(source)  # the challenge before it was counted already
            return None
        challenge = RefusalResponse(401, self._digest.challenges(source, stale=DigestResult.STALE in findings))
        if DigestResult.WRONG not in findings:
            return challenge
        for limits, key in tries:
            limits.ask(key)
        return self._refuse("credentials", host, challenge)

    def _tries(self, source: str, answers: Iterable[Credentials]) -> list[tuple[SourceLimits, str]]:
        """Return the keys by which wrong answers are counted: the source, and each of its user names."""
        names = {f"{source} {answer.username}" for answer in answers}
        return [(self._wrong_by_source, source), *((self._wrong_by_user, name) for name in names)]

    def is_unsolicited_challenge(self, host: str, response: str, *, is_ours: Callable[[str], bool]) -> bool:
        """Whether a 401 or 407 is neither for REGISTER or PUBLISH, nor for a call that we placed, nor of a trusted peer."""
        if not sip_message.is_ambiguous(response):
            call_id = sip_message.header_value(response, "call-id")
            if (
                sip_message.cseq_method(response) in ("REGISTER", "PUBLISH")
                or host in self._trusted
                or is_ours(call_id)
            ):
                return False
        self._refuse("unsolicited_challenge", host, _SILENCE)
        return True

    def note_malformed(self, host: str) -> None:
        self._refuse("malformed", host, _SILENCE)

    def note_connection(self, host: str) -> None:
        """Count a connection that was refused."""
        self._refuse("connections", host, _SILENCE)

    def take_refused(self) -> dict[RefusedCause, RefusedRequests]:
        refused, self._refused = self._refused, {}
        return refused

    def _refuse(self, cause: RefusedCause, host: str, refusal: RefusalResponse) -> RefusalResponse:
        refused = self._refused.setdefault(cause, RefusedRequests())
        refused.count += 1
        if len(refused.sources) < MAX_SOURCES_REPORTED:
            refused.sources.add(host)
        return refusal


def _unusable(method: str, message: str, transports: tuple[str, ...], *, is_ambiguous: bool) -> RefusalResponse | None:
    if is_ambiguous:
        return RefusalResponse(_BAD_REQUEST, reason="Line ends or a header that may come once")
    if fault := sip_message.contradiction(message):
        return RefusalResponse(_BAD_REQUEST, reason=fault)
    if not sip_message.is_for_sip(message):
        return RefusalResponse(416)
    if method not in _TARGETING:
        return None
    if sip_message.has_foreign_uri(message, "contact", "record-route"):
        return RefusalResponse(_BAD_REQUEST, reason="Contact or Record-Route is no SIP URI")
    if sip_message.dialog_of(message) is None and (fault := _fault_of_next_hop(message, transports)):
        return RefusalResponse(_BAD_REQUEST, reason=fault)
    return None


def _fault_of_next_hop(message: str, transports: tuple[str, ...]) -> str:
    """Return why our requests in this dialog could not be sent; PJSIP would only say 500."""
    for name in ("Record-Route", "Contact"):
        if value := sip_message.header_value(message, name):
            fault = fault_of_target(sip_message.first_uri(value), transports)
            return f"{name}: {fault}" if fault else ""
    return ""


def _credentials(message: str) -> list[Credentials]:
    values = sip_message.header_values(message, "authorization")
    if len(values) > MAX_AUTHORIZATIONS:
        raise MalformedCredentials("too many")
    return [found for value in values if (found := parse_credentials(value)) is not None]
