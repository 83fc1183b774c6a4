"""The transports of SIP: UDP, TCP, TLS. Runs on: the SIP thread.

With a certificate that it rejects PJSIP completes the handshake, then closes the connection before any SIP message is read
or sent, in both directions.
"""

from collections.abc import Iterable
from typing import Any, Final

import pjsua2 as pj

from cc_tts import logs, port_owner
from cc_tts.config.schema import TlsConfig
from cc_tts.ua.messages import UaSettings
from cc_tts.ua.pjsip.sip_thread import pj_detail
from cc_tts.ua.pjsua2_build import BUILD, NO_TLS, START_SERVER_BUILD

log = logs.get(__name__)

HANDSHAKE_TIMEOUT_MS: Final = 5000
"""A peer that does not finish its TLS handshake within this time is disconnected; unmeasured."""
_TLS_1_2_OR_1_3: Final = 1 << 4 | 1 << 5
"""PJ_SSL_SOCK_PROTO_TLS1_2 and _TLS1_3, which have no names in Python; RFC 8996 deprecates what is older."""
_CIPHERS: Final = (0x1301, 0x1302, 0x1303, 0xC02B, 0xC02C, 0xCCA9, 0xC02F, 0xC030, 0xCCA8, 0x9E, 0x9F, 0xCCAA)
"""AEAD suites with forward secrecy only, by IANA's numbers: those of TLS 1.3, and ECDHE or DHE with GCM or ChaCha20 of
TLS 1.2 (RFC 9325 §4.2). No CBC, no key exchange by RSA. OpenSSL offers those of TLS 1.3 in any case.
"""


def open_all(endpoint: Any, settings: UaSettings, transports: Iterable[str], *, is_wheel: bool) -> None:
    """Listen on each. Raises ``RuntimeError`` if an address is taken or not ours, or this build has no TLS."""
    for name in transports:
        if is_wheel:
            _check_wheel(settings, name)
        config = _transport_config(settings, name)
        try:
            endpoint.transportCreate(getattr(pj, f"PJSIP_TRANSPORT_{name.upper()}"), config)
        except pj.Error as error:
            where = f"{settings.sip.host}:{config.port}/{name}"
            why = port_owner.reason("udp" if name == "udp" else "tcp", config.port, pj_detail(error))
            raise RuntimeError(f"cannot listen on {where}: {why}") from None


def _check_wheel(settings: UaSettings, name: str) -> None:
    if name == "tls":
        raise RuntimeError(NO_TLS)
    if name == "tcp" and settings.sip.public_address:
        log.warning(
            "public_address_over_udp_only",
            detail="over TCP the PyPI wheel of pjsua2 writes the machine's own address into Contact: "
            f"{BUILD}, then {START_SERVER_BUILD}",
        )


def _transport_config(settings: UaSettings, name: str) -> Any:
    config = pj.TransportConfig()
    config.port = settings.sip.port
    if settings.sip.host != "0.0.0.0":
        config.boundAddress = settings.sip.host
    config.publicAddress = settings.sip.public_address
    if name == "tls":
        assert settings.tls is not None
        config.port = settings.sip.tls_port
        _secure(config.tlsConfig, settings.tls)
    return config


def renew_tls(endpoint: Any, settings: UaSettings, *, before: UaSettings) -> str | None:
    """Listen for TLS again with new files and checks; return why that failed, and continue with ``before`` then."""
    for transport_id in endpoint.transportEnum():
        if endpoint.transportGetInfo(transport_id).type == pj.PJSIP_TRANSPORT_TLS:
            endpoint.transportClose(transport_id)
    try:
        open_all(endpoint, settings, ("tls",), is_wheel=False)
    except RuntimeError as error:
        log.error("tls_not_renewed", detail=str(error))
        try:
            open_all(endpoint, before, ("tls",), is_wheel=False)
        except RuntimeError as failure:
            return f"{error}; nor can the ones before be used any more: {failure}"
        return str(error)
    return None


def _secure(secured: Any, tls: TlsConfig) -> None:
    secured.certFile = tls.certificate_file
    secured.privKeyFile = tls.private_key_file
    secured.password = tls.private_key_password
    secured.CaListFile = tls.ca_file
    secured.proto = _TLS_1_2_OR_1_3
    secured.verifyClient = tls.verify_client
    secured.requireClientCert = tls.verify_client
    secured.verifyServer = tls.verify_server
    for number in _CIPHERS:
        secured.ciphers.append(number)
    secured.enableRenegotiation = False
    secured.msecTimeout = HANDSHAKE_TIMEOUT_MS
