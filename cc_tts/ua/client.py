"""The server's side of the UA process. Runs on: the event loop. Never imports pjsua2."""

import asyncio
import contextlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from cc_tts.clock import Clock
from cc_tts.config import tls as tls_files
from cc_tts.config.schema import Config, is_ip_address
from cc_tts.errors import ProcessFailed, UserAgentUnavailable
from cc_tts.processes.channel import Hello, Message
from cc_tts.processes.supervisor import ProcessState, Supervisor, python_child
from cc_tts.ua.messages import (
    FROM_UA,
    ApplySettings,
    SetAccepting,
    SettingsApplied,
    UaSettings,
)

RETRY_AFTER_S = 2
"""Retry-After of a client's request while the UA process restarts."""
APPLY_TIMEOUT_S = 5.0
"""For the UA process to take over new settings."""
RESOLV_CONF = Path("/etc/resolv.conf")
MAX_NAMESERVERS = 4
BUFFER_SLACK_MS = 1000
"""The UA's buffers hold this much more than the window, so that flow control, not the bound, decides."""


class UaListener(Protocol):
    """Receives what the UA process reports."""

    def on_ua_ready(self) -> None:
        """It can take and place calls."""
        ...

    def on_ua_down(self, reason: str) -> None:
        """It has ended, and all calls with it."""
        ...

    def on_ua_message(self, message: Message) -> None:
        """One of ``FROM_UA``."""
        ...


class UaClient:
    """Commands to the UA process."""

    def __init__(self, config: Config, *, clock: Clock) -> None:
        self._config = config
        settings = settings_of(config)
        self.default_caller = re.sub(r":[0-9]+$", "", settings.account_uri)  # From has no port (RFC 3261 §19.1.1)
        self._listener: UaListener | None = None
        self._accepting = True
        self.registered: bool | None = None
        self.active_pjsua_calls = 0
        self._reloaded: ApplySettings | None = None
        self._applied: asyncio.Future[dict[str, str]] | None = None
        self._supervisor = Supervisor(
            python_child("ua", "cc_tts.ua", messages=FROM_UA, settings=settings),
            clock=clock,
            on_message=self._on_message,
            on_ready=self._on_ready,
            on_down=self._on_down,
        )

    def listen(self, listener: UaListener) -> None:
        """Set the listener; before :meth:`start`."""
        self._listener = listener

    async def start(self) -> None:
        """Start the process.

        Raises:
            ProcessFailed: it cannot start; its log says why.
        """
        await self._supervisor.start()

    async def stop(self) -> None:
        """End the process."""
        await self._supervisor.stop()

    @property
    def pid(self) -> int | None:
        """Process id while it lives."""
        return self._supervisor.pid

    @property
    def is_ready(self) -> bool:
        """Whether commands can be sent and would be carried out now: it answers pings."""
        return self._supervisor.is_responsive

    @property
    def build(self) -> dict[str, str]:
        """Versions and limits that it reported."""
        return self._supervisor.hello.build if self._supervisor.hello is not None else {}

    @property
    def max_calls(self) -> int:
        """How many calls it takes at once; 0 while unknown."""
        return int(self.build.get("max_calls", "0"))

    @property
    def build_max_calls(self) -> int:
        """How many calls its build of PJSUA takes; 0 while unknown."""
        return int(self.build.get("build_max_calls", "0"))

    def set_accepting(self, *, accepting: bool) -> None:
        """Whether new calls are accepted or get 503. Remembered over a restart."""
        self._accepting = accepting
        if self._supervisor.state is ProcessState.READY:
            with contextlib.suppress(UserAgentUnavailable):  # it is going down; on_ready sends it again
                self.send(SetAccepting(accepting=accepting, retry_after_s=self._config.sip.retry_after_s))

    async def reload(self, config: Config, *, renew_tls: bool) -> dict[str, str]:
        """Have the UA process take over what can be changed while it runs, now or when it is next ready.

        Returns:
            What it could not take over before a restart: the key, and why.
        """
        self._config = config
        settings = settings_of(config)
        self._supervisor.set_settings(settings)
        self._reloaded = ApplySettings(settings=settings, renew_tls=renew_tls)
        if not self.is_ready:
            return {}
        self._applied = asyncio.get_running_loop().create_future()
        try:
            self.send(self._reloaded)
            async with asyncio.timeout(APPLY_TIMEOUT_S):
                return await self._applied
        except (UserAgentUnavailable, TimeoutError) as error:
            return {"sip, auth, tls": f"the UA process did not take them over: {error or 'no answer'}"}
        finally:
            self._applied = None

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Have the UA process carry out one of ``TO_UA``; ``payload`` is the PCM of :class:`cc_tts.ua.messages.Audio`.

        Raises:
            UserAgentUnavailable: it is not up.
        """
        try:
            self._supervisor.send(message, payload)
        except ProcessFailed as error:
            raise UserAgentUnavailable(str(error), retry_after_s=RETRY_AFTER_S) from error

    def _on_message(self, message: Message, payload: bytes) -> None:  # noqa: ARG002 - the UA sends no payloads
        assert self._listener is not None
        if isinstance(message, SettingsApplied):
            if self._applied is not None and not self._applied.done():
                self._applied.set_result(message.refused)
            return
        self._listener.on_ua_message(message)

    def _on_ready(self, hello: Hello) -> None:  # noqa: ARG002
        assert self._listener is not None
        if not self._accepting:
            self.set_accepting(accepting=False)
        if self._reloaded is not None:  # it may have been started with what was in force before
            with contextlib.suppress(UserAgentUnavailable):
                self.send(self._reloaded)
        self._listener.on_ua_ready()

    def _on_down(self, reason: str) -> None:
        assert self._listener is not None
        self._listener.on_ua_down(reason)


def system_nameservers(path: Path = RESOLV_CONF) -> tuple[str, ...]:
    """The name servers of the machine; none if it has no such file."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ()
    servers = [words[1] for line in lines if len(words := line.split()) > 1 and words[0] == "nameserver"]
    return tuple(server for server in servers if is_ip_address(server))[:MAX_NAMESERVERS]


def settings_of(config: Config) -> UaSettings:
    """The part of the configuration the UA process needs."""
    tls = replace(config.tls, ca_file=tls_files.ca_file(config.tls)) if "tls" in config.sip.transports else None
    return UaSettings(
        sip=replace(config.sip, nameservers=config.sip.nameservers or system_nameservers()),
        rtp=config.rtp,
        registration=config.registration,
        auth=config.auth,
        log=config.log,
        tls=tls,
        playout_max_buffered_ms=config.playout.window_ms + BUFFER_SLACK_MS,
    )
