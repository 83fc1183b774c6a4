"""The softphone's pjsua2 library: SIP only. Started, polled and ended on one thread.

pjsua2 gets a loop media transport and a null sound device: it opens no RTP or RTCP socket and sends no packet, while
offer/answer, hold and codecs work as ever. RTP is ours (:mod:`cc_tts.softphone.rtp.endpoint`). Runs on: the SIP thread.
"""

import contextlib
from collections import deque
from typing import Any, Final, Self

from cc_tts.clock import Clock
from cc_tts.egress.own_address import own_address_towards
from cc_tts.errors import ProcessFailed
from cc_tts.softphone.call import SoftphoneCall
from cc_tts.softphone.library import pj
from cc_tts.softphone.plan import DialPlan, PhoneSettings
from cc_tts.ua.pjsip.sip_thread import SipThread, pj_detail

MAX_CALLS: Final = 4
"""The number of calls that the pjsua2 wheel is built for (``PJSUA_MAX_CALLS``)."""
POLL_MS: Final = 5  # unmeasured

_CODECS: Final = ("PCMU/8000", "PCMA/8000")
_TRANSPORTS: Final = {"udp": pj.PJSIP_TRANSPORT_UDP, "tcp": pj.PJSIP_TRANSPORT_TCP}


class Phone:
    """Up to four calls at a time."""

    def __init__(self, settings: PhoneSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._events: deque[dict[str, Any]] = deque()  # the RTP threads of the calls append to it
        self.calls: dict[str, SoftphoneCall] = {}
        self._endpoint: Any = None
        self._account: Any = None

    def __enter__(self) -> Self:
        """Start the library, its transport and a local account."""
        SipThread.enter()
        settings = self._settings
        endpoint = pj.Endpoint()
        try:
            endpoint.libCreate()
            self._endpoint = endpoint
            endpoint.libInit(_endpoint_config())
            endpoint.audDevManager().setNullDev()
            for codec in endpoint.codecEnum2():
                endpoint.codecSetPriority(codec.codecId, 128 if codec.codecId.startswith(_CODECS) else 0)
            transport = pj.TransportConfig()
            transport.port, transport.boundAddress = settings.local_port, settings.local_address
            transport_id = endpoint.transportCreate(_TRANSPORTS[settings.transport], transport)
            endpoint.libStart()
            self._account = pj.Account()
            self._account.create(_account_config(settings, transport_id))
        except pj.Error as error:
            self.__exit__()
            where = f"{settings.local_address}:{settings.local_port} over {settings.transport}"
            raise ProcessFailed(f"the softphone cannot start on {where}: {pj_detail(error)}") from error
        return self

    def dial(self, plan: DialPlan) -> SoftphoneCall:
        """Begin a call; no other current call has its id."""
        SipThread.check()
        address, emit = self._settings.local_address, self._events.append
        call = SoftphoneCall(plan, account=self._account, address=address, clock=self._clock, emit=emit)
        self.calls[plan.call] = call
        call.dial()
        return call

    def poll(self) -> list[dict[str, Any]]:
        """Let the library work for a few ms and return the events; the last event of a call is its report."""
        SipThread.check()
        self._endpoint.libHandleEvents(POLL_MS)
        for name, call in list(self.calls.items()):
            call.settle()
            if call.ending is not None:
                del self.calls[name]
                call.dispose()
                event = {"event": "report", "call": name, "report": call.report(), "at_ns": self._clock.now_ns()}
                self._events.append(event)
        return [self._events.popleft() for _ in range(len(self._events))]

    def __exit__(self, *_exception: object) -> None:
        """End the library, which drops calls that are still up; to end them properly, hang up and poll first."""
        SipThread.check()
        for call in self.calls.values():
            call.dispose()
        self.calls.clear()
        with contextlib.suppress(pj.Error):
            if self._account is not None:
                self._account.shutdown()
        self._account = None
        with contextlib.suppress(pj.Error):
            if self._endpoint is not None:
                self._endpoint.libDestroy(pj.PJSUA_DESTROY_NO_NETWORK)
        self._endpoint = None


def _endpoint_config() -> Any:
    config = pj.EpConfig()
    config.uaConfig.threadCnt = 0
    config.uaConfig.mainThreadOnly = True
    config.uaConfig.maxCalls = MAX_CALLS
    config.uaConfig.userAgent = "cc-tts softphone"
    config.medConfig.clockRate = 8000
    config.medConfig.noVad = True
    config.medConfig.hasIoqueue = False
    config.medConfig.threadCnt = 0
    config.logConfig.level = 0
    config.logConfig.consoleLevel = 0
    return config


def _account_config(settings: PhoneSettings, transport_id: int) -> Any:
    config = pj.AccountConfig()
    config.idUri = settings.from_uri or f"sip:softphone@{settings.local_address}"
    config.sipConfig.transportId = transport_id
    config.mediaConfig.useLoopMedTp = True
    config.mediaConfig.transportConfig.boundAddress = settings.local_address
    if settings.username:
        credential = pj.AuthCredInfo("digest", "*", settings.username, 0, settings.password)
        config.sipConfig.authCreds.append(credential)
    return config


def local_address_towards(host: str, port: int) -> str:
    """Return the address of this machine from which ``host`` is reached; raises ``ProcessFailed`` without a route."""
    try:
        return own_address_towards(host, port)
    except OSError as error:
        raise ProcessFailed(f"{host}: {error.strerror or error}") from error
