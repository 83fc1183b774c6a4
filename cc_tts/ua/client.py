"""The server's side of the UA processes, and of the dispatcher if there are several. Never imports pjsua2."""

import asyncio
import contextlib
import itertools
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from cc_tts import __version__, logs
from cc_tts.clock import Clock
from cc_tts.cluster.nodes import call_id_prefix
from cc_tts.config import tls as tls_files
from cc_tts.config.schema import AuthConfig, Config, RegistrationConfig, SipConfig
from cc_tts.config.sip_uri import is_ip_address
from cc_tts.errors import CcTtsError, ProcessFailed, UserAgentUnavailable
from cc_tts.processes import adoption
from cc_tts.processes.channel import PROTOCOL_VERSION, Message
from cc_tts.processes.peer import STOPPED, ProcessState
from cc_tts.processes.supervisor import Supervisor, python_child
from cc_tts.ua import ended_calls, messages
from cc_tts.ua.dispatcher import DOWN, DispatcherSettings

RETRY_AFTER_S = 2
"""Retry-After of a client's request while the UA process restarts; unmeasured."""
APPLY_TIMEOUT_S = 5.0
"""The time that the UA process may take to apply new settings; unmeasured."""
TRACE_TIMEOUT_S = 3.0
"""The time that the UA processes may take to send a trace; unmeasured."""
RESOLV_CONF = Path("/etc/resolv.conf")
MAX_NAMESERVERS = 4  # unmeasured
SNAPSHOT_TIMEOUT_S = 5.0
"""The time that an adopted UA process may take to report its calls; unmeasured."""
BUFFER_SLACK_MS = 1000
"""The UA's buffers hold this much more than the window, so that flow control and not the buffer is the limit; unmeasured."""

log = logs.get(__name__)


class UaListener(Protocol):
    """Receives the reports of the UA processes."""

    def on_ua_ready(self, build: Mapping[str, str]) -> None:
        """A UA process can take and place calls."""
        ...

    def on_ua_down(self, reason: str, call_ids: Collection[str]) -> None: ...

    def on_ua_message(self, message: Message, payload: bytes = b"") -> None:
        """A UA process sent one of ``messages.FROM_UA``; ``payload`` is the PCM of :class:`cc_tts.ua.messages.CallAudio`."""
        ...


class _UaProcess:
    """One UA process, from the server's side."""

    def __init__(
        self, client: "UaClient", settings: messages.UaSettings, *, name: str, clock: Clock, module: str = "cc_tts.ua"
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._told_all = asyncio.Event()
        self.is_adopted = False
        self.call_ids: set[str] = set()
        self.sip_call_ids: dict[str, str] = {}  # of the incoming calls
        self.active_pjsua_calls = 0
        self.lets_calls_in = True
        """A process begins like this, and reports changes."""
        self.lateness = messages.MediaLateness(p99_ms=0.0, refusing=False)
        self.reloaded: messages.ApplySettings | None = None
        self._answers: dict[object, asyncio.Future[Any]] = {}
        self._applying = asyncio.Lock()  # one at a time: an answer does not name its settings
        self.supervisor = Supervisor(
            python_child(name, module, messages=messages.FROM_UA, settings=settings),
            clock=clock,
            on_message=self._on_message,
            on_ready=lambda _hello: client.on_process_ready(self),
            on_down=self._on_down,
        )

    @property
    def build(self) -> dict[str, str]:
        """The versions and limits that the process reported at its start; empty while there is none."""
        return self.supervisor.hello.build if self.supervisor.hello is not None else {}

    @property
    def free_calls(self) -> int:
        """How many more calls it takes; ``DOWN`` if it is not ready."""
        if self.supervisor.state is not ProcessState.READY:
            return DOWN
        limits = self.build
        free = int(limits["max_calls"]) - len(self.call_ids)
        return max(0, min(free, int(limits["build_max_calls"]) - self.active_pjsua_calls))

    def send_if_up(self, message: Message) -> None:
        """Send a message that is repeated once the process is ready, or that would be of no use to the next process."""
        with contextlib.suppress(ProcessFailed):
            self.supervisor.send(message)

    async def adopt(self, asked: Mapping[str, adoption.AdoptedProcess]) -> None:
        """Adopt the process, if there is one; see :meth:`UaClient.adopt`. ``asked`` are processes by their sockets."""
        if not self._settings.adoption_socket:
            return
        path = Path(self._settings.adoption_socket)
        try:
            child = await adoption.adopt(path, _request(self._settings), asked=asked.get(str(path)))
        except adoption.HasServer as error:
            raise ProcessFailed(_taken(self._settings, error)) from None
        if adoption.may_wait_at(path):
            for message in ended_calls.take(path, self._clock):
                self._on_message(message, b"")
        if child is None:
            return
        self.is_adopted = True
        self.reloaded = messages.ApplySettings(self._settings, renew_tls=True)  # it was started with older settings
        await self.supervisor.start(child)
        try:
            async with asyncio.timeout(SNAPSHOT_TIMEOUT_S):
                await self._told_all.wait()
        except TimeoutError:
            raise ProcessFailed("the UA process that was adopted did not tell of its calls") from None
        log.info("adopted", process=child.pid, calls=len(self.call_ids))

    async def reload(self, settings: messages.UaSettings, *, renew_tls: bool) -> dict[str, str]:
        """Apply settings; see :meth:`UaClient.reload`."""
        async with self._applying:
            self.supervisor.set_settings(settings)
            self.reloaded = messages.ApplySettings(settings=settings, renew_tls=renew_tls)
            if not self.supervisor.is_responsive:
                return {}
            try:
                applied: messages.SettingsApplied = await self.ask(self.reloaded, "settings", APPLY_TIMEOUT_S)
            except (ProcessFailed, TimeoutError) as error:
                return {"sip, auth, tls": f"the UA process did not take them over: {error or 'no answer'}"}
            return applied.refused

    async def ask(self, command: Message, key: object, timeout_s: float) -> Any:
        """Send a command and return its answer, which has this key. Raises ``ProcessFailed`` or ``TimeoutError``."""
        answer = self._answers[key] = asyncio.get_running_loop().create_future()
        try:
            self.supervisor.send(command)
            async with asyncio.timeout(timeout_s):
                return await answer
        finally:
            del self._answers[key]

    def _note_answer(self, key: object, message: Message) -> None:
        if (answer := self._answers.get(key)) is not None and not answer.done():
            answer.set_result(message)

    def _on_message(self, message: Message, payload: bytes) -> None:
        match message:
            case messages.SettingsApplied():
                self._note_answer("settings", message)
                return
            case messages.AcceptingSet(accepting=accepting):
                self.lets_calls_in = accepting
                return
            case messages.CallTrace(serial=serial):
                self._note_answer(serial, message)
                return
            case messages.ActivePjsuaCalls(count=count):
                self.active_pjsua_calls = count
                self._client.publish_free_calls()
            case messages.MediaLateness():
                self.lateness = message
            case messages.SnapshotComplete():
                self._told_all.set()
                return
            case messages.IncomingCall(call_id=call_id) | messages.CallSnapshot(call_id=call_id):
                self.call_ids.add(call_id)
                self.sip_call_ids[call_id] = message.sip_call_id
                self._client.publish_free_calls()
            case messages.CallEnded(call_id=call_id):
                self.call_ids.discard(call_id)
                self.sip_call_ids.pop(call_id, None)
                self._client.publish_free_calls()
        self._client.listener.on_ua_message(message, payload)
        if isinstance(message, messages.CallEnded):
            self._client.renew(self)

    def _on_down(self, reason: str) -> None:
        call_ids, self.call_ids = self.call_ids, set()
        self.sip_call_ids.clear()
        self.active_pjsua_calls, self.lets_calls_in = 0, True
        self.lateness = messages.MediaLateness(p99_ms=0.0, refusing=False)
        self._client.on_process_down(reason, call_ids)


class UaClient:
    """Commands to the UA processes."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock,
        on_dispatcher_down: Callable[[], None] = lambda: None,
        asked: Mapping[str, adoption.AdoptedProcess] = MappingProxyType({}),
    ) -> None:
        self.listener: UaListener
        """Receives all reports; it is set before the processes are started or adopted."""
        self._config = config
        self._asked = asked
        everyone = settings_of(config)
        self.default_caller = re.sub(r":[0-9]+$", "", everyone[0].account_uri)  # From has no port (RFC 3261 §19.1.1)
        self._accepting = True
        self._trace_serials = itertools.count(1)
        self._is_started = False
        self.registered: bool | None = None
        names = ["ua"] if len(everyone) == 1 else [f"ua-{number}" for number in range(1, len(everyone) + 1)]
        self._processes = [
            _UaProcess(self, settings, name=name, clock=clock) for name, settings in zip(names, everyone, strict=True)
        ]
        self._lines: list[_UaProcess] = []
        """The process of the lines without SIP, if there is one."""
        if (of_lines := settings_of_lines(config)) is not None:
            self._lines = [_UaProcess(self, of_lines, name="lines", clock=clock, module="cc_tts.ua.lines")]
        self._dispatcher: Supervisor | None = None
        if len(everyone) > 1:
            settings = DispatcherSettings(sip=config.sip, ua=config.ua, log=config.log)
            self._dispatcher = Supervisor(
                python_child("dispatcher", "cc_tts.ua.dispatcher", messages=(), settings=settings),
                clock=clock,
                on_message=lambda _message, _payload: None,
                on_ready=lambda _hello: self._brief_dispatcher(),
                on_down=lambda reason: None if reason == STOPPED else on_dispatcher_down(),
            )

    async def adopt(self) -> None:
        """Adopt the processes that have outlived another server, with their calls. They take no new calls before
        :meth:`start`.

        Raises:
            ProcessFailed: one belongs to another server, or does not answer.
        """
        await asyncio.gather(*(each.adopt(self._asked) for each in self._everyone))

    @property
    def has_adopted(self) -> bool:
        return any(each.is_adopted for each in self._everyone)

    @property
    def _everyone(self) -> list[_UaProcess]:
        """The processes that have calls."""
        return self._processes + self._lines

    async def start(self) -> None:
        """Start the processes that were not adopted, and accept calls.

        Raises:
            ProcessFailed: one cannot start; its log says why.
        """
        self._is_started = True
        for process in self._everyone:
            if process.is_adopted:
                process.send_if_up(self._acceptance)
        missing = [each for each in self.supervisors if each.state is ProcessState.STOPPED]
        started = await asyncio.gather(*(each.start() for each in missing), return_exceptions=True)
        for process in self._everyone:
            self.renew(process)
        if failed := [result for result in started if result is not None]:
            await asyncio.gather(*(each.stop() for each in missing))
            raise failed[0]

    async def stop(self) -> None:
        await asyncio.gather(*(each.stop() for each in self.supervisors))

    @property
    def supervisors(self) -> list[Supervisor]:
        of_dispatcher = [] if self._dispatcher is None else [self._dispatcher]
        return of_dispatcher + [each.supervisor for each in self._everyone]

    @property
    def is_ready(self) -> bool:
        """Whether a call could be taken or placed now, as far as the processes are concerned: those it needs
        answer pings.
        """
        is_reached = self._is_started and (self._dispatcher is None or self._dispatcher.is_responsive)
        is_reached = is_reached and all(each.build or each.supervisor.num_restarts for each in self._lines)
        return is_reached and any(each.supervisor.is_responsive for each in self._processes)

    @property
    def build(self) -> dict[str, str]:
        """The versions and limits that a process reported at its start; empty before the first is up."""
        return next((each.build for each in self._processes if each.build), {})

    @property
    def max_calls(self) -> int:
        return sum(int(each.build.get("max_calls", "0")) for each in self._processes)

    @property
    def is_full(self) -> bool:
        """Whether none of the running processes takes another call."""
        return max(each.free_calls for each in self._processes) == 0

    @property
    def lateness(self) -> messages.MediaLateness:
        """The lateness of the process whose media is the latest."""
        return max((each.lateness for each in self._everyone), key=lambda each: (each.refusing, each.p99_ms))

    def set_accepting(self, *, accepting: bool) -> None:
        """Accept new calls, or have them refused with 503. It also holds for processes that are started later."""
        self._accepting = accepting
        for process in self._everyone:
            process.send_if_up(self._acceptance)

    @property
    def lets_calls_in(self) -> bool:
        """Whether every process has read that it is to let new calls in."""
        return all(each.lets_calls_in for each in self._everyone)

    @property
    def _acceptance(self) -> messages.SetAccepting:
        return messages.SetAccepting(accepting=self._accepting, retry_after_s=self._config.sip.retry_after_s)

    async def reload(self, config: Config, *, renew_tls: bool) -> dict[str, str]:
        """Apply settings that can change at run time in the UA processes, now or when they are next ready.

        Returns:
            What could not be taken over before a restart: the key, and why.
        """
        self._config = config
        each_of_them = zip(self._everyone, _settings_of_all(config), strict=True)
        refused = await asyncio.gather(
            *(process.reload(settings, renew_tls=renew_tls) for process, settings in each_of_them)
        )
        return {key: why for each in refused for key, why in each.items()}

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Send one of ``TO_UA`` to the UA process of a call; ``payload`` is the PCM of :class:`cc_tts.ua.messages.Audio`.
        Nothing is sent for a call that has ended.

        Raises:
            UserAgentUnavailable: it is not up.
        """
        process = self._process_of(getattr(message, "call_id", ""))
        if process is None:
            if self._roomiest.free_calls == DOWN:
                raise UserAgentUnavailable("the ua process is not up", retry_after_s=RETRY_AFTER_S)
            return
        try:
            process.supervisor.send(message, payload)
        except ProcessFailed as error:
            raise UserAgentUnavailable(str(error), retry_after_s=RETRY_AFTER_S) from error

    def originate(self, message: messages.Originate, *, beside: str = "") -> None:
        """Place a call: in the UA process of the call ``beside``, else in the one with the most room.

        Raises:
            UserAgentUnavailable: it is not up.
        """
        process = self._process_of(beside) or self._roomiest
        process.call_ids.add(message.call_id)
        try:
            self.send(message)
        except UserAgentUnavailable:
            process.call_ids.discard(message.call_id)
            raise
        self.publish_free_calls()

    def are_together(self, *call_ids: str) -> bool:
        """Whether these calls are in the same UA process."""
        return len({self._process_of(each) for each in call_ids}) == 1

    def _process_of(self, call_id: str) -> _UaProcess | None:
        return next((each for each in self._everyone if call_id in each.call_ids), None)

    @property
    def _roomiest(self) -> _UaProcess:
        return max(self._processes, key=lambda each: each.free_calls)

    async def trace(self, call_id: str, sip_call_id: str) -> messages.CallTrace:
        """Return the SIP messages of a live or ended call. Every process is asked, as it is not known which one had it.

        Raises:
            UserAgentUnavailable: none is up, or one does not answer.
        """
        up = [each for each in self._processes if each.supervisor.state is ProcessState.READY]
        if not up:
            raise UserAgentUnavailable("the ua process is not up", retry_after_s=RETRY_AFTER_S)
        asked = messages.SendTrace(call_id, sip_call_id=sip_call_id, serial=next(self._trace_serials))
        try:
            asking = (each.ask(asked, asked.serial, TRACE_TIMEOUT_S) for each in up)
            found: list[messages.CallTrace] = await asyncio.gather(*asking)
        except (ProcessFailed, TimeoutError):
            raise UserAgentUnavailable("the ua process does not answer", retry_after_s=RETRY_AFTER_S) from None
        return max(found, key=lambda each: len(each.messages))

    def tell(self, message: Message, payload: bytes = b"") -> None:
        """Send as :meth:`send` does, but ignore a UA process that died: its calls end anyway."""
        with contextlib.suppress(UserAgentUnavailable):
            self.send(message, payload)

    def note_end(self, call_id: str) -> None:
        """Confirm that the end of a call is accounted for, whichever process had it."""
        for process in self._everyone:
            process.send_if_up(messages.EndNoted(call_id))

    def renew(self, process: _UaProcess) -> None:
        """Restart a process of another version once it has no calls."""
        if process.is_adopted and not process.call_ids and process.build.get("cc_tts") != __version__:
            process.is_adopted = False
            process.supervisor.restart(f"it is of cc-tts {process.build.get('cc_tts')}, and has no more calls")

    def on_process_ready(self, process: _UaProcess) -> None:
        if not self._accepting:
            process.send_if_up(self._acceptance)
        if process.reloaded is not None:  # it may have been started with the former settings
            process.send_if_up(process.reloaded)
        self.publish_free_calls()
        if process in self._processes:
            self.listener.on_ua_ready(process.build)

    def on_process_down(self, reason: str, call_ids: Collection[str]) -> None:
        self.publish_free_calls()
        self.listener.on_ua_down(reason, call_ids)

    def _brief_dispatcher(self) -> None:
        """Tell a dispatcher that has just started everything that it missed."""
        assert self._dispatcher is not None
        with contextlib.suppress(ProcessFailed):  # a process that is down is told when it is up again
            for number, process in enumerate(self._processes):
                self._dispatcher.send(
                    messages.AssignCalls(process=number, sip_call_ids=tuple(process.sip_call_ids.values()))
                )
        self.publish_free_calls()

    def publish_free_calls(self) -> None:
        """Tell the dispatcher, if there is one, how many calls each process takes."""
        if self._dispatcher is not None and self._dispatcher.state is ProcessState.READY:
            with contextlib.suppress(ProcessFailed):  # a process that is down gets them when it is up again
                self._dispatcher.send(messages.SetFreeCalls(tuple(each.free_calls for each in self._processes)))


def ask_waiting_processes(config: Config) -> dict[str, adoption.AdoptedProcess]:
    """Ask the waiting processes to be adopted, by their sockets, before the server's slow imports and loading: their grace
    period then ends. Errors are left to :meth:`UaClient.adopt`.
    """
    asked = {}
    with contextlib.suppress(CcTtsError):
        for settings in _settings_of_all(config):
            path = Path(settings.adoption_socket)
            is_possible = settings.adoption_socket and path.parent.exists()
            if is_possible and (found := adoption.ask(path, _request(settings))):
                asked[settings.adoption_socket] = found
    return asked


def _request(settings: messages.UaSettings) -> adoption.Adopt:
    return adoption.Adopt(protocol=PROTOCOL_VERSION, version=__version__, settings=settings.fingerprint)


def _taken(settings: messages.UaSettings, error: adoption.HasServer) -> str:
    """Return what the operator can do if another server has the process already."""
    if settings.asterisk is not None:
        return f"asterisk: the lines without SIP are those of a running cc-tts, pid {error.server_pid}: end it"
    who = f"pid {error.server_pid}" if error.server_pid else f"whose SIP process has pid {error.pid}"
    return (
        f"sip.port: port {settings.public_port} of {settings.sip.host} is served by a running cc-tts, {who}, which keeps "
        "its calls. End it, or give this one another sip.port; if it hangs, kill it, and its calls go to the next server"
    )


def system_nameservers(path: Path = RESOLV_CONF) -> tuple[str, ...]:
    """Return the name servers of the machine; none if it has no such file."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ()
    servers = [words[1] for line in lines if len(words := line.split()) > 1 and words[0] == "nameserver"]
    return tuple(server for server in servers if is_ip_address(server))[:MAX_NAMESERVERS]


def settings_of(config: Config) -> list[messages.UaSettings]:
    """Return the settings of each UA process. They share the calls and the RTP ports; one of them registers."""
    sip, rtp, num = config.sip, config.rtp, config.ua.processes
    tls = replace(config.tls, ca_file=tls_files.ca_file(config.tls)) if "tls" in sip.transports else None
    nameservers = sip.nameservers or system_nameservers()
    num_ports = 2 * (rtp.num_pairs // num)
    everyone = []
    for number in range(num):
        first_rtp = rtp.port_min + number * num_ports
        everyone.append(
            messages.UaSettings(
                sip=replace(
                    sip,
                    nameservers=nameservers,
                    port=sip.port if num == 1 else config.ua.own_ports[number],
                    max_calls=(sip.max_calls + number) // num,
                ),
                quality=config.quality,
                rtp=rtp if num == 1 else replace(rtp, port_min=first_rtp, port_max=first_rtp + num_ports - 1),
                registration=config.registration,
                trunks=config.trunks,
                auth=config.auth,
                log=config.log,
                tls=tls,
                playout_max_buffered_ms=config.playout.window_ms + BUFFER_SLACK_MS,
                dispatcher_port=sip.port if num > 1 else 0,
                registers=number == 0,
                call_id_prefix=call_id_prefix(config),
                takes_refer=any(route.refer != "refuse" for route in config.routes.values()),
                orphan_grace_ms=config.ua.orphan_grace_ms,
                adoption_socket=_adoption_socket(config, number),
            )
        )
    return everyone


def _settings_of_all(config: Config) -> list[messages.UaSettings]:
    of_lines = settings_of_lines(config)
    return settings_of(config) + ([] if of_lines is None else [of_lines])


def settings_of_lines(config: Config) -> messages.UaSettings | None:
    """Return the settings of the process of lines without SIP; ``None`` if there are no lines."""
    if not config.asterisk.is_on:
        return None
    return messages.UaSettings(
        sip=SipConfig(retry_after_s=config.sip.retry_after_s),
        rtp=config.rtp,
        registration=RegistrationConfig(),
        auth=AuthConfig(),
        log=config.log,
        playout_max_buffered_ms=config.playout.window_ms + BUFFER_SLACK_MS,
        playout_window_ms=config.playout.window_ms,
        call_id_prefix=call_id_prefix(config),
        orphan_grace_ms=config.ua.orphan_grace_ms,
        adoption_socket=_adoption_socket(config, 0, "lines"),
        asterisk=config.asterisk,
    )


def _adoption_socket(config: Config, number: int, kind: str = "ua") -> str:
    """Return where the process with this port waits. In a network namespace only one process at a time can have the port."""
    if not config.ua.orphan_grace_ms:
        return ""
    sip = config.sip
    name = f"{kind}-{sip.host}-{sip.port}-{sip.tls_port}-{number + 1}-{adoption.network_namespace()}"
    return str(adoption.socket_path(os.environ, name))
