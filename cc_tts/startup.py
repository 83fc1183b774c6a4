"""What can be found wrong with a configuration on this machine before anything is served: the server's start looks at it,
and ``cc-tts check-config`` at the same.

::

    check_machine    addresses · build of pjsua2 · TLS files · cache folder       before anything is started
    check_speech     default voice · the routes' voices, languages, greetings     once the engine knows its voices
"""

import errno
import socket
from typing import Any, Final

from cc_tts.clock import MonotonicClock
from cc_tts.config import tls as tls_files
from cc_tts.config.schema import Config
from cc_tts.engines.factory import make_engine
from cc_tts.errors import ConfigError
from cc_tts.metrics import Metrics
from cc_tts.speech.prompt_files import PromptFiles
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer
from cc_tts.ua import pjsua2_build

PORT_TYPES: Final = {"udp": socket.SOCK_DGRAM, "tcp": socket.SOCK_STREAM, "tls": socket.SOCK_STREAM}


async def check(config: Config) -> list[str]:
    """Look at everything a start would, without taking a port for longer than a moment and without loading a model.

    Returns:
        What still works and should be looked after, a sentence each.

    Raises:
        ConfigError: the server would not start, or refuse every call of a route.
        EngineFailed, ProcessFailed: the speech engine does not start.
    """
    warnings = check_machine(config)
    engine = make_engine(config, purpose="check")
    await engine.start()
    try:
        warnings += check_speech(config, SpeechSource(engine, Normalizer(), config.tts))
    finally:
        await engine.stop()
    return warnings


def check_machine(config: Config) -> list[str]:
    """Look at addresses, files and builds.

    Returns:
        What still works and should be looked after, a sentence each.

    Raises:
        ConfigError: the server would not start; the message says which key and what to do.
    """
    pjsua2_build.chosen()
    warnings = tls_files.check(config.tls, now_s=MonotonicClock().wall_s())
    if "tls" in config.sip.transports:
        tls_files.ca_file(config.tls)
    _check_addresses(config)
    if config.cache.enabled:
        PromptFiles(config.cache, Metrics()).check()
    return warnings + _implausible_ports(config)


def check_speech(config: Config, source: SpeechSource) -> list[str]:
    """Look at what would be said in which voice. The engine has started.

    Returns:
        As :func:`check_machine`.

    Raises:
        ConfigError: a voice does not exist, a language is not spoken, or a greeting cannot be said.
    """
    return source.check_voices(config.routes)


def _check_addresses(config: Config) -> None:
    """Bind what the server will bind, and let go of it. A port in use is no fault: the server may be running."""
    sip, http = config.sip, config.http
    for name in sip.transports:
        port, key = (sip.tls_port, "sip.tls_port") if name == "tls" else (sip.port, "sip.port")
        _check_address(sip.host, port, PORT_TYPES[name], host_key="sip.host", port_key=key)
    if config.ua.processes > 1:
        for port in config.ua.own_ports:
            _check_address(sip.host, port, socket.SOCK_DGRAM, host_key="sip.host", port_key="ua.first_port")
    _check_address(http.host, http.port, socket.SOCK_STREAM, host_key="http.host", port_key="http.port")


def _check_address(host: str, port: int, kind: socket.SocketKind, *, host_key: str, port_key: str) -> None:
    try:
        found = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)
    except socket.gaierror:
        raise ConfigError(f"{host_key}: {host[:255]!r} is neither an address nor a name that resolves") from None
    failures = {_bind_error(family, kind, address) for family, _, _, _, address in found}
    if failures == {errno.EADDRNOTAVAIL}:
        raise ConfigError(f"{host_key}: {host} is not an address of this machine; 0.0.0.0 listens on all that it has")
    if failures == {errno.EACCES}:
        raise ConfigError(f"{port_key}: {port} needs privileges; use a port above 1023, or grant CAP_NET_BIND_SERVICE")


def _bind_error(family: int, kind: socket.SocketKind, address: Any) -> int | None:
    try:
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError as error:
        return error.errno
    return None


def _implausible_ports(config: Config) -> list[str]:
    sip, rtp, http = config.sip, config.rtp, config.http
    warnings = []
    for name in sip.transports:
        port, key = (sip.tls_port, "sip.tls_port") if name == "tls" else (sip.port, "sip.port")
        if name == "udp" and rtp.port_min <= port <= rtp.port_max:
            warnings.append(f"sip.port {port} lies between rtp.port_min and rtp.port_max: calls cannot use that port")
        if name != "udp" and port == http.port != 0 and _overlap(sip.host, http.host):
            raise ConfigError(f"{key} and http.port are both {port}, but each needs a TCP port of its own")
    if config.ua.processes > 1 and any(rtp.port_min <= own <= rtp.port_max for own in config.ua.own_ports):
        warnings.append("the ports from ua.first_port on lie between rtp.port_min and rtp.port_max")
    if rtp.num_pairs < sip.max_calls:
        warnings.append(
            f"sip.max_calls is {sip.max_calls}, but rtp.port_min to rtp.port_max has ports for {rtp.num_pairs} calls only"
        )
    return warnings


def _overlap(host: str, other: str) -> bool:
    anywhere = {"0.0.0.0", "::", ""}
    same = {host, other} <= {"127.0.0.1", "localhost"}
    return host == other or same or bool({host, other} & anywhere)
