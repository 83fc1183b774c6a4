"""The accounts of the user agent: one for calls by address, one more to register with a PBX. Runs on: the SIP thread."""

from collections.abc import Callable
from typing import Any, Final

import pjsua2 as pj

from cc_tts.ua.guard.srtp_sdp import CRYPTO_SUITES
from cc_tts.ua.messages import UaSettings
from cc_tts.ua.pjsip import pj_info
from cc_tts.ua.pjsip.sip_thread import callback

_UNREGISTER_WAIT_MS: Final = 1000
"""The library waits this long for answers to its last requests in any case (``pjsua_destroy2``)."""
_SRTP_USE: Final = {
    "off": pj.PJMEDIA_SRTP_DISABLED,
    "optional": pj.PJMEDIA_SRTP_OPTIONAL,
    "required": pj.PJMEDIA_SRTP_MANDATORY,
}


class Account(pj.Account):  # type: ignore[misc]
    """Passes on incoming calls. It is active as soon as it is made."""

    def __init__(self, config: Any, *, on_incoming: Callable[["Account", int, Any], None], trunk: str = "") -> None:
        super().__init__()
        self.trunk = trunk
        self._on_incoming = on_incoming
        self.on_answer: Callable[[int, int, str], None] = lambda _token, _sip_code, _response: None
        """Called with the result of a request outside a call: its token, the status, the response."""
        self.create(config)

    @callback
    def onIncomingCall(self, prm: Any) -> None:
        self._on_incoming(self, prm.callId, prm.rdata)

    @callback
    def onSendRequest(self, prm: Any) -> None:
        change = prm.e.body.tsxState
        if change.tsx.state >= pj.PJSIP_TSX_STATE_COMPLETED:
            self.on_answer(int(prm.userData), int(change.tsx.statusCode), pj_info.received(prm))


def local_config(settings: UaSettings) -> Any:
    """Return the account for calls that arrive by address."""
    config = _common(settings)
    config.idUri = settings.local_uri
    config.priority = 0
    # Contact is where we listen (RFC 3261 §8.1.1.8, §12.1.1), not the port of one TCP connection, which PJSIP closes when it
    # is idle: a BYE would go nowhere. Nor is it the only way to us (RFC 5626 §4.3).
    config.natConfig.contactUseSrcPort = 0
    config.natConfig.sipOutboundUse = 0
    return config


def digest_config(settings: UaSettings, proxy: str = "") -> Any:
    """Return the registered user's account for calls that we place: it answers digest challenges (RFC 3261 §22)."""
    config = _common(settings)
    config.idUri = settings.account_uri
    config.priority = 1
    registration = settings.registration
    credentials = pj.AuthCredInfo("digest", registration.realm, registration.username, 0, registration.password)
    config.sipConfig.authCreds.append(credentials)
    if proxy:
        loose = proxy if ";lr" in proxy else f"{proxy};lr"  # RFC 3261 §16.12: a loose router
        config.sipConfig.proxies.append(f"<{loose}>")
    return config


def registered_config(settings: UaSettings, proxy: str = "") -> Any:
    """Return the same account with registration (RFC 3261 §10.2): its calls arrive where all calls do."""
    config = digest_config(settings, proxy)
    registration = settings.registration
    if settings.dispatcher_port:
        config.sipConfig.contactForced = f"<sip:{registration.username}@{settings.own_host}:{settings.public_port}>"
    config.regConfig.registrarUri = settings.registrar_uri
    config.regConfig.timeoutSec = registration.expires_s
    config.regConfig.unregWaitMsec = _UNREGISTER_WAIT_MS
    config.regConfig.retryIntervalSec = registration.retry_s
    config.regConfig.firstRetryIntervalSec = min(5, registration.retry_s)
    return config


def _common(settings: UaSettings) -> Any:
    config = pj.AccountConfig()
    media = config.mediaConfig
    media.transportConfig.port = settings.rtp.port_min
    # to the last even port, so that its RTCP is in the range too; 0 would mean any port
    media.transportConfig.portRange = max(1, 2 * (settings.rtp.num_pairs - 1))
    # after a restart former callers still send to their ports, and PJMEDIA sends to where packets come from: a new call on
    # such a port would be heard by the wrong person
    media.transportConfig.randomizePort = True
    if settings.sip.host != "0.0.0.0":
        media.transportConfig.boundAddress = settings.sip.host
    media.transportConfig.publicAddress = settings.sip.public_address
    _set_srtp(media, settings)
    media.lockCodecEnabled = False
    media.streamKaEnabled = False
    config.natConfig.iceEnabled = False
    config.natConfig.turnEnabled = False
    config.natConfig.contactRewriteUse = 0
    config.natConfig.viaRewriteUse = 0
    config.natConfig.sdpNatRewriteUse = 0
    config.natConfig.udpKaIntervalSec = 0
    config.callConfig.timerUse = pj.PJSUA_SIP_TIMER_OPTIONAL
    return config


def _set_srtp(media: Any, settings: UaSettings) -> None:
    """Use SRTP with keys in the SDP (RFC 4568) over any transport; the operator is warned if others can read them."""
    media.srtpUse = _SRTP_USE[settings.rtp.srtp]
    media.srtpSecureSignaling = 0
    for name in CRYPTO_SUITES:
        suite = pj.SrtpCrypto()
        suite.name = name
        media.srtpOpt.cryptos.append(suite)
    media.srtpOpt.keyings.append(pj.PJMEDIA_SRTP_KEYING_SDES)
