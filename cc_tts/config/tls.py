"""The certificate, its key and the CAs of ``[tls]``: whether SIP over TLS can work with them, before anything starts.

OpenSSL checks them, through :mod:`ssl`: the pair is loaded as the server will load it, and used for a handshake in memory,
which fails for the same reasons as one with a peer that verifies, validity dates included.
"""

import contextlib
import hashlib
import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cc_tts.config.schema import TlsConfig
from cc_tts.errors import ConfigError

WARN_DAYS: Final = 30
"""A certificate that expires sooner than this gets a warning."""
_MAX_FLIGHTS: Final = 8
"""The most round trips of a handshake; TLS 1.2 takes two (unmeasured)."""
_NO_CHECK_TIME: Final = ssl.VerifyFlags(0x200000)
"""``X509_V_FLAG_NO_CHECK_TIME`` of OpenSSL, which :mod:`ssl` has no name for."""
_WORLD_READABLE: Final = 0o004
SYSTEM_CA_FILES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Where Debian, Red Hat and Alpine keep the public CAs in one file."""


def check(tls: TlsConfig, *, now_s: float) -> list[str]:
    """Look at every file of ``[tls]`` that is named: what still works and should be looked after, a sentence each. Raises
    ``ConfigError``, which says what to do, if a file cannot be used. ``now_s``: seconds since the epoch.
    """
    warnings: list[str] = []
    if tls.certificate_file:
        warnings += _check_pair(tls, now_s)
    if tls.ca_file:
        _readable("tls.ca_file", tls.ca_file)
        try:
            _client().load_verify_locations(cafile=tls.ca_file)
        except ssl.SSLError:
            raise ConfigError(f"tls.ca_file: {tls.ca_file} holds no certificate in PEM form") from None
    return warnings


def expiry_s(tls: TlsConfig) -> float | None:
    """Return when the certificate of ``[tls]`` expires, seconds since the epoch; ``None`` without one that can be used."""
    if not tls.certificate_file:
        return None
    try:
        seen = _peer_certificate(*_pair(tls))
    except (ConfigError, ssl.SSLError, OSError):
        return None
    return float(ssl.cert_time_to_seconds(str(seen["notAfter"])))


def fingerprint(tls: TlsConfig) -> bytes:
    """A digest of what the files of ``[tls]`` hold now; files that cannot be read count as empty."""
    digest = hashlib.sha256()
    for path in (tls.certificate_file, tls.private_key_file, tls.ca_file):
        data = b""
        with contextlib.suppress(OSError):
            data = Path(path).read_bytes() if path else b""
        digest.update(hashlib.sha256(data).digest())
    return digest.digest()


def ca_file(tls: TlsConfig) -> str:
    """Return the CAs that peers' certificates are checked against: those of the system unless ``tls.ca_file`` is set. Raises
    ``ConfigError`` if a check is required and there are none.
    """
    if tls.ca_file or not tls.verify_server:
        return tls.ca_file
    if found := next((path for path in SYSTEM_CA_FILES if Path(path).is_file()), None):
        return found
    raise ConfigError(
        "tls.verify_server is on, tls.ca_file is empty and this machine has no list of CAs; set tls.ca_file, install the "
        "package ca-certificates, or set tls.verify_server = false"
    )


def _check_pair(tls: TlsConfig, now_s: float) -> list[str]:
    _readable("tls.certificate_file", tls.certificate_file)
    _readable("tls.private_key_file", tls.private_key_file)
    warnings = _validity(tls.certificate_file, *_pair(tls), now_s)
    if Path(tls.private_key_file).stat().st_mode & _WORLD_READABLE:
        warnings.append(
            f"{tls.private_key_file} can be read by everybody on this machine; chmod o-r {tls.private_key_file}"
        )
    return warnings


def _pair(tls: TlsConfig) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server with the certificate and its key, and a client that trusts this very certificate,
    whatever its dates.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.minimum_version = ssl.TLSVersion.TLSv1_2
    leaf, client = _leaf(tls.certificate_file), _client()
    try:
        client.load_verify_locations(cadata=leaf)
    except ssl.SSLError:
        raise ConfigError(f"tls.certificate_file: {tls.certificate_file} holds a damaged certificate") from None
    try:
        # without a function OpenSSL asks for the password at the terminal
        server.load_cert_chain(tls.certificate_file, tls.private_key_file, password=lambda: tls.private_key_password)
    except ssl.SSLError as error:
        raise ConfigError(_pair_fault(tls, error.reason or "")) from None
    except ValueError:
        raise ConfigError("tls.private_key_password is too long") from None
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    return server, client


def _pair_fault(tls: TlsConfig, reason: str) -> str:
    if reason == "KEY_VALUES_MISMATCH":
        return f"{tls.private_key_file} is not the key of {tls.certificate_file}; set tls.private_key_file to the one it is"
    if "ENCRYPTED" in Path(tls.private_key_file).read_text(encoding="ascii", errors="replace"):
        how = "is not its password" if tls.private_key_password else "is empty: set CC_TTS_TLS__PRIVATE_KEY_PASSWORD"
        return f"{tls.private_key_file} is encrypted, and tls.private_key_password {how}"
    if reason.startswith(("EE_KEY", "CA_KEY", "CA_MD")):
        return f"{tls.certificate_file}: its key or signature is too weak for OpenSSL ({reason}); have a new one issued"
    detail = f" ({reason})" if reason else ""
    return f"{tls.private_key_file} holds no private key in PEM form that OpenSSL can read{detail}"


def _leaf(path: str) -> str:
    """The first certificate of a file, the one the server is known by."""
    text = Path(path).read_text(encoding="ascii", errors="replace")
    match = re.search("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", text, re.DOTALL)
    if match is None:
        raise ConfigError(f"tls.certificate_file: {path} holds no certificate in PEM form")
    return match[0]


def _validity(path: str, server: ssl.SSLContext, client: ssl.SSLContext, now_s: float) -> list[str]:
    """Do a handshake of both, in which only the certificate's purpose can fail, and look at the dates."""
    try:
        seen = _peer_certificate(server, client)
    except ssl.SSLCertVerificationError as error:
        return [f"{path}: peers that verify will refuse it: {error.verify_message}"]
    except ssl.SSLError as error:
        raise ConfigError(f"{path}: TLS does not work with it: {error.reason or error}") from None
    begins_s, ends_s = (ssl.cert_time_to_seconds(str(seen[name])) for name in ("notBefore", "notAfter"))
    if ends_s < now_s:
        return [f"{path} has expired: peers that verify refuse every call; have it renewed"]
    if begins_s > now_s:
        return [f"{path} is not valid yet: peers that verify refuse every call; is this machine's clock right?"]
    ends = datetime.fromtimestamp(ends_s, UTC)
    days = (ends - datetime.fromtimestamp(now_s, UTC)).days
    return [f"{path} expires in {days} days, on {ends.date()}; have it renewed"] if days < WARN_DAYS else []


def _client() -> ssl.SSLContext:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    return client


def _peer_certificate(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, object]:
    """Return the certificate that the client sees, after a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    connecting = client.wrap_bio(to_client, to_server)
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    is_done = False
    for _ in range(_MAX_FLIGHTS):
        for side in (connecting, accepting):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
                is_done = True
        if is_done:
            break
    return dict(connecting.getpeercert() or {})


def _readable(key: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            return
    except FileNotFoundError:
        raise ConfigError(f"{key}: {path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{key}: {path}: {error.strerror}; the server's user must be able to read it") from None
