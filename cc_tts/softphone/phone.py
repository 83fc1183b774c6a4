"""The softphone's pjsua2 library: SIP only. Started, polled and ended on one thread.

pjsua2 gets a loop media transport and a null sound device: it opens no RTP or RTCP socket and sends no
packet, while offer/answer, hold and codecs work as ever. RTP is ours (:mod:`cc_tts.softphone.rtp.endpoint`).

Runs on: the SIP thread.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final

import pjsua2 as pj

from cc_tts.clock import Clock
from cc_tts.errors import CapacityExceeded, ProcessFailed
from cc_tts.softphone.call import SoftphoneCall
from cc_tts.softphone.plan import DialPlan
from cc_tts.ua.sip_thread import SipThread, pj_detail

MAX_CALLS: Final = 4
"""What the pjsua2 wheel is built for (``PJSUA_MAX_CALLS``)."""
POLL_MS: Final = 5

_CODECS: Final = ("PCMU/8000", "PCMA/8000")
_TRANSPORTS: Final = {"udp": pj.PJSIP_TRANSPORT_UDP, "tcp": pj.PJSIP_TRANSPORT_TCP}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneSettings:
    """Local addresses, the From URI and credentials."""

    address: str = "127.0.0.1"
    port: int = 0
    transport: str = "udp"
    from_uri: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    pjsip_log_level: int = 0


class Phone:
    """Up to four calls at a time."""

    def __init__(self, settings: PhoneSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._events: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._calls: dict[str, SoftphoneCall] = {}
        self._endpoint: Any = None
        self._account: Any = None

    def start(self) -> None:
        """Start the library, its transport and a local account."""
        SipThread.enter()
        settings = self._settings
        endpoint = pj.Endpoint()
        try:
            with _silent_stdout():
                endpoint.libCreate()
                self._endpoint = endpoint
                endpoint.libInit(_endpoint_config(settings))
            endpoint.audDevManager().setNullDev()
            for codec in endpoint.codecEnum2():
                endpoint.codecSetPriority(codec.codecId, 128 if codec.codecId.startswith(_CODECS) else 0)
            transport = pj.TransportConfig()
            transport.port, transport.boundAddress = settings.port, settings.address
            transport_id = endpoint.transportCreate(_TRANSPORTS[settings.transport], transport)
            endpoint.libStart()
            self._account = pj.Account()
            self._account.create(_account_config(settings, transport_id))
        except pj.Error as error:
            self.close()
            where = f"{settings.address}:{settings.port} over {settings.transport}"
            raise ProcessFailed(f"the softphone cannot start on {where}: {pj_detail(error)}") from error

    def dial(self, plan: DialPlan) -> SoftphoneCall:
        """Begin a call."""
        SipThread.check()
        if len(self._calls) >= MAX_CALLS:
            raise CapacityExceeded(f"the softphone holds {MAX_CALLS} calls at a time")
        if plan.call in self._calls:
            raise ValueError(f"call {plan.call!r} is still up; use another id")
        call = SoftphoneCall(
            plan, account=self._account, address=self._settings.address, clock=self._clock, emit=self._events.put
        )
        self._calls[plan.call] = call
        call.dial()
        return call

    def call(self, call_id: str) -> SoftphoneCall:
        """A call that is up."""
        if call_id not in self._calls:
            raise ValueError(f"no call {call_id!r}; calls up: {', '.join(self._calls) or 'none'}")
        return self._calls[call_id]

    @property
    def has_calls(self) -> bool:
        """Whether any call is up."""
        return bool(self._calls)

    def hang_up_all(self) -> None:
        """BYE or CANCEL for every call."""
        for call in self._calls.values():
            call.hang_up()

    def poll(self) -> list[dict[str, Any]]:
        """Let the library work for a few ms, settle the calls, and return what happened.

        The report of a call that has ended is its last event.
        """
        SipThread.check()
        self._endpoint.libHandleEvents(POLL_MS)
        for call in list(self._calls.values()):
            call.settle()
        ended = [call for call in self._calls.values() if call.ending is not None]
        for call in ended:
            del self._calls[call.plan.call]
            call.dispose()
        events = self._take_events()
        for call in ended:
            report = call.report()
            events += self._take_events()
            events.append({"event": "report", "call": call.plan.call, "at_ns": self._clock.now_ns(), "report": report})
        return events

    def _take_events(self) -> list[dict[str, Any]]:
        events = []
        with contextlib.suppress(Empty):
            while True:
                events.append(self._events.get_nowait())
        return events

    def close(self) -> None:
        """End the library. Calls still up are dropped; hang them up and poll first to end them politely."""
        SipThread.check()
        for call in self._calls.values():
            call.dispose()
        self._calls.clear()
        if self._endpoint is None:
            return
        with contextlib.suppress(pj.Error):
            if self._account is not None:
                self._account.shutdown()
        self._account = None
        with contextlib.suppress(pj.Error), _silent_stdout():
            self._endpoint.libDestroy(pj.PJSUA_DESTROY_NO_NETWORK)
        self._endpoint = None


def _endpoint_config(settings: PhoneSettings) -> Any:
    config = pj.EpConfig()
    config.uaConfig.threadCnt = 0
    config.uaConfig.mainThreadOnly = True
    config.uaConfig.maxCalls = MAX_CALLS
    config.uaConfig.userAgent = "cc-tts softphone"
    config.medConfig.clockRate = 8000
    config.medConfig.noVad = True
    config.medConfig.hasIoqueue = False
    config.medConfig.threadCnt = 0
    config.logConfig.level = settings.pjsip_log_level
    config.logConfig.consoleLevel = settings.pjsip_log_level
    return config


def _account_config(settings: PhoneSettings, transport_id: int) -> Any:
    config = pj.AccountConfig()
    config.idUri = settings.from_uri or f"sip:softphone@{settings.address}"
    config.sipConfig.transportId = transport_id
    config.mediaConfig.useLoopMedTp = True
    config.mediaConfig.transportConfig.boundAddress = settings.address
    if settings.username:
        credential = pj.AuthCredInfo("digest", "*", settings.username, 0, settings.password)
        config.sipConfig.authCreds.append(credential)
    return config


@contextlib.contextmanager
def _silent_stdout() -> Iterator[None]:
    """PJLIB prints to standard output until its log is configured, and while it ends; ours carries JSON."""
    sys.stdout.flush()
    kept = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def local_address_towards(host: str, port: int) -> str:
    """Address of this machine from which ``host`` is reached. No packet is sent.

    Raises:
        ProcessFailed: the name does not resolve or there is no route.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((host, port))
            address: str = sock.getsockname()[0]
    except OSError as error:
        raise ProcessFailed(f"{host}: {error.strerror or error}") from error
    return address
