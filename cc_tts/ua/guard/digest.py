"""Digest authentication of those who call us (RFC 3261 §22.1, RFC 7616, RFC 8760). No pjsua2 here, no sockets.

A nonce is its own record: when it was made, a random part, and an HMAC over both and the source it went to, under a secret
of this process. Only nonces that came back with a right answer are remembered, for the count that makes each answer good
for one request; callers who do not know a password fill no table.

The ``uri`` of an answer is not compared with the Request-URI: proxies on the way rewrite that (RFC 3261 §16.6), and since an
answer counts once, it cannot be used for another callee afterwards.
"""

import enum
import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from cc_tts.clock import NS_PER_MS, Clock
from cc_tts.config.schema import AuthConfig, RegistrationConfig

MAX_CREDENTIALS_CHARS: Final = 2048
"""The most parameters of an Authorization header; RFC 7616 §3.4 has twelve."""
MAX_NONCES: Final = 20_000
"""The most nonces whose count is remembered. Older ones count as expired; unmeasured."""
_MAX_PARAMETERS: Final = 32  # unmeasured
_RANDOM_BYTES: Final = 8
_TIME_BYTES: Final = 8
_MAC_BYTES: Final = 16
_ORIGIN_BITS: Final = 48
"""The time in a nonce counts from a random origin, so that it does not reveal the machine's uptime."""
_NONCE_CHARS: Final = 2 * (_TIME_BYTES + _RANDOM_BYTES + _MAC_BYTES)
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(rf'[ \t]*({_WORD})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))[ \t]*(?:,|\Z)')
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NC: Final = re.compile(r"[0-9a-fA-F]{8}")
_HASHES: Final = {"SHA-256": "sha256", "MD5": "md5"}
"""The algorithms of RFC 7616 §3.3 have these names in hashlib."""
_NAMES: Final = {name.lower(): name for name in _HASHES}
_REQUIRED: Final = ("username", "realm", "nonce", "uri", "response", "cnonce")


class MalformedCredentials(ValueError):
    """An unreadable Authorization header; the response is 400 (RFC 7616 §3.4)."""


class DigestResult(enum.Enum):
    VALID = enum.auto()
    """The password is right, and the answer was not used before."""
    STALE = enum.auto()
    """The nonce is expired, used, or not ours: a new one is needed, and the user need not enter the password again."""
    WRONG = enum.auto()
    """The nonce was given to this source, and the answer to it is wrong."""
    FOREIGN = enum.auto()
    """The answer is for another realm or by an algorithm that was not offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """One Authorization header with ``qop=auth``; ``nc`` is a count, ``algorithm`` as in RFC 7616 §3.3."""

    username: str
    realm: str
    nonce: str
    uri: str
    response: str
    cnonce: str
    nc: str
    algorithm: str = "MD5"


def parse_credentials(value: str) -> Credentials | None:
    """Read an Authorization header (RFC 7616 §3.4); ``None`` if its scheme is not Digest."""
    if len(value) > MAX_CREDENTIALS_CHARS:
        raise MalformedCredentials("too long")
    scheme, _, rest = value.strip(" \t").partition(" ")
    if scheme.lower() != "digest":
        return None
    given = _parameters(rest)
    if given.get("qop", "").lower() != "auth":
        raise MalformedCredentials("qop is not auth")
    if not _NC.fullmatch(given.get("nc", "")):
        raise MalformedCredentials("nc is not eight hexadecimal digits")
    if missing := [name for name in _REQUIRED if not given.get(name)]:
        raise MalformedCredentials(f"no {missing[0]}")
    given["response"] = given["response"].lower()
    algorithm = given.get("algorithm", "MD5")
    return Credentials(
        **{name: given[name] for name in _REQUIRED}, nc=given["nc"], algorithm=_NAMES.get(algorithm.lower(), algorithm)
    )


def answer_to(challenge: str, login: RegistrationConfig, *, method: str, uri: str, cnonce: str) -> str | None:
    """Return the header that answers a ``WWW-Authenticate`` or ``Proxy-Authenticate`` (RFC 7616 §3.4, without qop RFC 2069
    §2.1.2); ``None`` if it cannot be answered, or the password is for another realm.
    """
    scheme, _, rest = challenge.strip(" \t").partition(" ")
    try:
        asked = _parameters(rest) if scheme.lower() == "digest" and len(challenge) <= MAX_CREDENTIALS_CHARS else {}
    except MalformedCredentials:
        return None
    algorithm, realm, qop = _NAMES.get(asked.get("algorithm", "MD5").lower(), ""), asked.get("realm"), asked.get("qop")
    is_known = algorithm and (qop is None or "auth" in re.split(r"[ ,]+", qop.lower()))
    if not (is_known and realm is not None and asked.get("nonce")) or login.realm not in ("*", realm):
        return None
    given = {"username": login.username, "realm": realm, "nonce": asked["nonce"], "uri": uri}
    ha1 = user_hash(algorithm, login.username, realm, login.password)
    more = ""
    if qop is None:
        response = _hashed(algorithm, f"{ha1}:{asked['nonce']}:{_hashed(algorithm, f'{method}:{uri}')}")
    else:
        once = Credentials(**given, response="", cnonce=cnonce, nc="00000001", algorithm=algorithm)
        response = digest(once, ha1, method)
        given["cnonce"] = cnonce
        more = f", qop=auth, nc={once.nc}"
    given |= {"response": response} | {name: asked[name] for name in ("opaque",) if name in asked}
    return f"Digest {', '.join(f'{name}={quoted(text)}' for name, text in given.items())}, algorithm={algorithm}{more}"


def _parameters(text: str) -> dict[str, str]:
    if _CONTROL.search(text):
        raise MalformedCredentials("control characters")
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _PARAMETER.match(text, position)
        if match is None or len(found) == _MAX_PARAMETERS:
            raise MalformedCredentials("not a list of parameters")
        name = match[1].lower()
        if name in found:
            raise MalformedCredentials(f"{name} comes twice")
        found[name] = re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        position = match.end()
    if text.rstrip(" \t").endswith(","):
        raise MalformedCredentials("nothing after the last comma")
    return found


def quoted(text: str) -> str:
    """Return ``text`` as a quoted-string (RFC 3261 §25.1)."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def digest(answer: Credentials, ha1: str, method: str) -> str:
    """Return the correct response (RFC 7616 §3.4.1), in hexadecimal; ``ha1`` comes from :func:`user_hash`."""
    ha2 = _hashed(answer.algorithm, f"{method}:{answer.uri}")
    return _hashed(answer.algorithm, f"{ha1}:{answer.nonce}:{answer.nc}:{answer.cnonce}:auth:{ha2}")


def user_hash(algorithm: str, username: str, realm: str, password: str) -> str:
    """Return H(A1) of RFC 7616 §3.4.2, in hexadecimal digits."""
    return _hashed(algorithm, f"{username}:{realm}:{password}")


def _hashed(algorithm: str, text: str) -> str:
    return hashlib.new(_HASHES[algorithm], _bytes(text), usedforsecurity=False).hexdigest()


def _bytes(text: str) -> bytes:
    """Return the bytes on the wire; lone surrogates stand for bytes that are not UTF-8 (PEP 383)."""
    return text.encode("utf-8", "surrogateescape")


class DigestGuard:
    """Challenges callers and checks their answers."""

    def __init__(self, auth: AuthConfig, clock: Clock) -> None:
        self._realm = realm = auth.realm
        self._algorithms = auth.algorithms
        self._clock = clock
        self._lifetime_ms = round(auth.nonce_lifetime_s * 1000)
        self._secret = secrets.token_bytes(32)
        self._origin_ms = secrets.randbits(_ORIGIN_BITS)
        self._hashes = {
            (algorithm, user.username): user_hash(algorithm, user.username, realm, user.password)
            for algorithm in self._algorithms
            for user in auth.users
        }
        self._nobody = {
            algorithm: user_hash(algorithm, "", realm, secrets.token_hex(16)) for algorithm in self._algorithms
        }
        self._last_nc: OrderedDict[str, int] = OrderedDict()
        self._forgotten_until_ms = -1

    def challenges(self, source: str, *, stale: bool) -> tuple[tuple[str, str], ...]:
        """Return the headers, the stronger algorithm first (RFC 8760 §2.3), with one new nonce for ``source``."""
        head = f'Digest realm={quoted(self._realm)}, nonce="{self._new_nonce(source)}", algorithm='
        tail = ', qop="auth", stale=true' if stale else ', qop="auth"'
        return tuple(("WWW-Authenticate", head + algorithm + tail) for algorithm in self._algorithms)

    def verify(self, credentials: Credentials, *, method: str, source: str) -> DigestResult:
        """Check the answer of ``source`` to one of our challenges. A valid one can be used once.

        A nonce that was not issued to this source is stale, whatever the password: nobody can try passwords without
        receiving our responses, and a forged source address causes no failures for its owner.
        """
        algorithm = credentials.algorithm
        if credentials.realm != self._realm or algorithm not in self._algorithms:
            return DigestResult.FOREIGN
        issued_ms = self._issued_ms(credentials.nonce, source)
        if issued_ms is None:
            return DigestResult.STALE
        user = (algorithm, credentials.username)
        right = digest(credentials, self._hashes.get(user, self._nobody[algorithm]), method)
        same = hmac.compare_digest(right.encode(), _bytes(credentials.response))
        if not same or user not in self._hashes:
            return DigestResult.WRONG
        return (
            DigestResult.VALID
            if self._use_up(credentials.nonce, issued_ms, int(credentials.nc, 16))
            else DigestResult.STALE
        )

    def _use_up(self, nonce: str, issued_ms: int, nc: int) -> bool:
        """Whether ``nc`` is higher than every count of this nonce so far (RFC 7616 §3.4.5)."""
        now_ms = self._now_ms()
        is_in_time = max(now_ms - self._lifetime_ms, self._forgotten_until_ms + 1) <= issued_ms <= now_ms
        if not is_in_time or nc <= self._last_nc.get(nonce, 0):
            return False
        self._last_nc[nonce] = nc
        self._last_nc.move_to_end(nonce)
        if len(self._last_nc) > MAX_NONCES:
            oldest, _ = self._last_nc.popitem(last=False)
            self._forgotten_until_ms = max(self._forgotten_until_ms, _time_of(oldest))
        return True

    def _now_ms(self) -> int:
        return self._origin_ms + self._clock.now_ns() // NS_PER_MS

    def _new_nonce(self, source: str) -> str:
        body = self._now_ms().to_bytes(_TIME_BYTES, "big").hex() + secrets.token_hex(_RANDOM_BYTES)
        return body + self._mac(body, source)

    def _issued_ms(self, nonce: str, source: str) -> int | None:
        """Return when we issued this nonce to this source; ``None`` if we did not."""
        body, mac = nonce[: -2 * _MAC_BYTES], nonce[-2 * _MAC_BYTES :]
        genuine = hmac.compare_digest(self._mac(body, source).encode(), _bytes(mac))
        return _time_of(nonce) if genuine and len(nonce) == _NONCE_CHARS else None

    def _mac(self, body: str, source: str) -> str:
        return hmac.digest(self._secret, _bytes(f"{body} {source}"), "sha256")[:_MAC_BYTES].hex()


def _time_of(nonce: str) -> int:
    return int(nonce[: 2 * _TIME_BYTES], 16)
