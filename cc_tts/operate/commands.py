"""The commands for running servers: they ask, and print."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import Config
from cc_tts.errors import CcTtsError, ConfigError
from cc_tts.operate import tables
from cc_tts.operate.find import Found, is_live, the_call
from cc_tts.operate.given import given_text
from cc_tts.operate.servers import RELOAD_TIMEOUT_S, REQUEST_TIMEOUT_S, NoServer, NotDone, RunningServer, opened
from cc_tts.operate.top import top

HANGUP_TIMEOUT_S: Final = 5.0
"""The far side may take this long to end a call (unmeasured)."""
POLL_INTERVAL_S: Final = 0.2  # unmeasured
DRAIN_MARGIN_S: Final = 30.0
"""A drain may take this much longer than ``calls.drain_timeout_s``: hanging up, and ending the processes (unmeasured)."""
DRAIN_POLL_S: Final = 1.0  # unmeasured
CLOCK: Final = MonotonicClock()
MAX_UTTERANCES: Final = 10
"""Prompts that ``show`` tells of, the last ones (unmeasured)."""

Servers = Sequence[RunningServer]


def run(options: argparse.Namespace, config: Config) -> int:
    """Carry out a command; returns the exit status: 1 if a server does not answer, refuses, or is not ready."""
    return asyncio.run(_run(options, config))


async def _run(options: argparse.Namespace, config: Config) -> int:
    timeout_s = RELOAD_TIMEOUT_S if options.operation == "reload" else REQUEST_TIMEOUT_S
    async with opened(config, options.server, timeout_s=timeout_s) as servers:
        if options.operation == "drain":
            return await _drain(servers, config.calls.drain_timeout_s + DRAIN_MARGIN_S)
        return await _COMMANDS[options.operation](options, servers)


async def _drain(servers: Servers, limit_s: float) -> int:
    said, status = await _asked(servers, lambda each: each.ask("POST", "/v1/admin/drain", scope="admin", body={}))
    if not said:
        return status
    print("draining: no new calls", flush=True)
    try:
        async with asyncio.timeout(limit_s):
            for server, _ in said:
                while await server.is_up():  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(DRAIN_POLL_S)
    except TimeoutError:
        print(f"cc-tts: the server has not ended within {limit_s:g} s", file=sys.stderr)
        return 1
    print("drained")
    return status


async def _asked(
    servers: Servers, ask: Callable[[RunningServer], Awaitable[Any]]
) -> tuple[list[tuple[RunningServer, Any]], int]:
    """Ask every server at once. Return what those said that have answered, and 1 if one has not, which is printed.

    Raises:
        CcTtsError: the only one does not answer.
    """
    answers = await asyncio.gather(*(ask(each) for each in servers), return_exceptions=True)
    said, status = [], 0
    for server, answer in zip(servers, answers, strict=True):
        if isinstance(answer, BaseException):
            if not isinstance(answer, CcTtsError) or isinstance(answer, ConfigError) or len(servers) == 1:
                raise answer
            print(f"cc-tts: {answer.title}: {answer.detail}", file=sys.stderr)
            status = 1
        else:
            said.append((server, answer))
    return said, status


def _print(options: argparse.Namespace, found: object, *lines: str) -> None:
    """Print the lines, or what was found as JSON, if that is asked for."""
    print(tables.as_json(found) if options.json else "\n".join(lines))


def _with_servers(said: Sequence[tuple[RunningServer, Any]]) -> list[dict[str, Any]]:
    """Return the answers for JSON, each with the server that gave it."""
    return [{"server": server.url, **each} for server, each in said]


async def _calls_of(servers: Servers) -> tuple[list[Found], int]:
    async def ask(server: RunningServer) -> Any:
        return (await server.ask("GET", "/v1/calls", scope="read"))["calls"]

    answers, status = await _asked(servers, ask)
    return [(server, call) for server, calls in answers for call in calls], status


async def _find(options: argparse.Namespace, servers: Servers) -> Found:
    calls, status = await _calls_of(servers)
    try:
        return the_call(calls, options.call)
    except NotDone as error:
        unheard = "; a server that did not answer may have it" if status else ""
        raise NotDone(error.detail + unheard) from None


def _path(call: Mapping[str, Any], action: str = "") -> str:
    return f"/v1/calls/{quote(call['id'], safe='')}{action}"


async def _calls(options: argparse.Namespace, servers: Servers) -> int:
    found, status = await _calls_of(servers)
    shown = [(server, call) for server, call in found if options.all or is_live(call)]
    if options.ids:
        for _, call in shown:
            print(tables.plain(call["id"]))
        return status
    where = len(servers) > 1
    head = (*tables.CALL_COLUMNS, *(["SERVER"] if where else []))
    rows = [(*tables.call_row(call, CLOCK.wall_s()), *([server.url] if where else [])) for server, call in shown]
    lines = tables.table(head, rows) if rows else ["no calls" if options.all else "no calls are up"]
    _print(options, {"calls": _with_servers(shown)}, *lines)
    return status


async def _show(options: argparse.Namespace, servers: Servers) -> int:
    server, call = await _find(options, servers)
    ids = call["utterances"][-MAX_UTTERANCES:]
    said = await asyncio.gather(
        *(server.ask("GET", f"/v1/utterances/{quote(each, safe='')}", scope="read") for each in ids)
    )
    quality = call["quality"]
    facts = {
        "call": call["id"],
        "server": server.url,
        "SIP Call-ID": call["sip_call_id"],
        "caller": call["caller"],
        "callee": call["callee"],
        "state": tables.ending(call),
        "time": tables.lasted(call, CLOCK.wall_s()),
        "held": "yes" if call["held"] else "no",
        "media": f"{call['codec'] or '-'} over {call['transport'] or '-'}{', SRTP' if call['srtp'] else ''}",
        "quality": f"MOS {tables.mos(call)}, loss {tables.loss(call)}, jitter {quality['jitter_ms'] or '-'} ms, "
        f"round trip {quality['round_trip_ms'] or '-'} ms, {quality['underruns']} underruns",
        **{name: call[name] for name in ("tenant", "trunk", "bridged_to", "client_state") if call.get(name)},
        **{f"header {name}": value for name, value in call["headers"].items()},
        **{f"metadata {name}": value for name, value in call["metadata"].items()},
    }
    lines = tables.table(("", ""), list(facts.items()))[1:]
    rows = [
        (each["id"], each["completion_cause"] or each["state"], each["voice"], each["played_ms"], each["spoken_text"])
        for each in said
    ]
    if rows:
        lines += ["", *tables.table(("UTTERANCE", "STATE", "VOICE", "PLAYED MS", "HEARD"), rows)]
    _print(options, {"server": server.url, **call, "utterances": said}, *lines)
    return 0


async def _hang_up(options: argparse.Namespace, servers: Servers) -> int:
    server, call = await _find(options, servers)
    body = {} if options.code is None else {"sip_code": options.code}
    ended = await server.ask("POST", _path(call, "/hangup"), scope="call", body=body)
    ended = await _until(lambda: server.ask("GET", _path(call), scope="read"), lambda each: not is_live(each), ended)
    how = "BYE is sent; the far side has not answered it yet" if is_live(ended) else tables.ending(ended)
    _print(options, {"server": server.url, **ended}, tables.plain(f"{call['id']}: {how}"))
    return int(is_live(ended))


async def _until(
    ask: Callable[[], Awaitable[Any]], is_over: Callable[[Any], bool], state: Any, timeout_s: float = HANGUP_TIMEOUT_S
) -> Any:
    """Ask until it is over, at most for this time; returns the last answer."""
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while not is_over(state) and asyncio.get_running_loop().time() < deadline_s:
        await asyncio.sleep(POLL_INTERVAL_S)
        state = await ask()
    return state


async def _say_to(options: argparse.Namespace, servers: Servers) -> int:
    server, call = await _find(options, servers)
    text = await asyncio.to_thread(given_text, options.text)
    body = {"ssml" if options.ssml else "text": text}
    body |= {name: getattr(options, name) for name in ("voice", "language") if getattr(options, name)}
    if options.now:
        body["queue"] = "replace"
    said = await server.ask("POST", _path(call, "/speak"), scope="call", body=body)
    for warning in said.get("warnings", ()):
        print(f"line {warning['line']}: {tables.plain(warning['detail'])}", file=sys.stderr)
    if options.wait:
        path = f"/v1/utterances/{quote(said['id'], safe='')}"
        said = await _until(
            lambda: server.ask("GET", path, scope="read"), lambda each: each["state"] == "complete", said, float("inf")
        )
    how = tables.plain(said["completion_cause"] or said["state"])
    _print(options, {"server": server.url, **said}, f"{said['id']}: {how}, {said['voice']}")
    return int(options.wait and said["completion_cause"] != "normal")


async def _trace(options: argparse.Namespace, servers: Servers) -> int:
    server, call = await _find(options, servers)
    kind = "pcap" if options.pcap else "json" if options.json else "text" if options.full else "ladder"
    found = await server.read("GET", _path(call, "/trace"), scope="read", format=kind)
    if kind == "json":
        print(tables.as_json({"server": server.url, **msgspec.json.decode(found)}))
    elif kind != "pcap":
        print(found.decode(), end="")
    elif options.pcap == "-":
        sys.stdout.buffer.write(found)
    else:
        try:
            await asyncio.to_thread(Path(options.pcap).write_bytes, found)
        except OSError as error:
            raise ConfigError(f"--pcap: cannot write {options.pcap}: {error.strerror}") from None
        print(f"{options.pcap}: {len(found)} bytes")
    return 0


async def _status_of(server: RunningServer) -> Any:
    return await server.ask("GET", "/v1/admin/status", scope="read")


async def _status(options: argparse.Namespace, servers: Servers) -> int:
    said, status = await _asked(servers, _status_of)
    lines = [line for server, each in said for line in ("", *_status_lines(server, each))]
    _print(options, {"servers": _with_servers(said)}, *lines[1:])
    return status or int(any(each["not_ready_because"] is not None for _, each in said))


def _status_lines(server: RunningServer, status: Mapping[str, Any]) -> list[str]:
    facts = {
        "server": server.url,
        "node": f"{status['node'] or '-'}, cc-tts {status['version']}, process {status['pid']}",
        "state": tables.readiness(status),
        **({"degraded": status["degraded_because"]} if status["degraded_because"] else {}),
        "calls": f"{status['calls']} of {status['max_calls']}",
        "engine": status["engine"],
        **({} if status["registered"] is None else {"registered": "yes" if status["registered"] else "NO"}),
        "media late by": f"{status['media_lateness_ms']:g} ms (p99)",
        "log level": f"{status['log_level']}, PJSIP {status['pjsip_level']}",
    }
    children = [
        (each["name"], each["state"], each["pid"] or "-", f"{each['restarts']} restarts")
        for each in status["processes"]
    ]
    workers = [(each["name"], each["state"], each["where"], each["problem"]) for each in status["workers"]]
    lines = tables.table(("", ""), list(facts.items()))[1:]
    lines += ["", *tables.table(("PROCESS", "STATE", "PID", ""), children)] if children else []
    return lines + (["", *tables.table(("WORKER", "STATE", "WHERE", ""), workers)] if workers else [])


async def _workers(options: argparse.Namespace, servers: Servers) -> int:
    said, status = await _asked(servers, _status_of)
    workers = [{"server": server.url, **each} for server, status_ in said for each in status_["workers"]]
    names = ("name", "where", "state", "device", "generation", "streams", "room", "utilisation", "first_audio_ms")
    rows = [(*("-" if each[name] in (None, "") else each[name] for name in names), each["problem"]) for each in workers]
    head = ("WORKER", "WHERE", "STATE", "DEVICE", "GENERATION", "STREAMS", "ROOM", "BUSY", "FIRST AUDIO MS", "PROBLEM")
    _print(options, {"workers": workers}, *(tables.table(head, rows) if rows else ["no workers"]))
    return status


async def _tenants(options: argparse.Namespace, servers: Servers) -> int:
    async def ask(server: RunningServer) -> Any:
        return (await server.ask("GET", "/v1/admin/tenants", scope="read"))["tenants"]

    said, status = await _asked(servers, ask)
    tenants = [{"server": server.url, **each} for server, found in said for each in found]
    kinds = ("calls", "streams", "listeners", "characters")
    rows = [
        (each["name"], *(_of(each[kind], each["held"][kind]) for kind in kinds), each["refused"], each["server"])
        for each in tenants
    ]
    head = ("TENANT", "CALLS", "STREAMS", "LISTENERS", "CHARACTERS TODAY", "REFUSED", "SERVER")
    none = "no tenants: [tenants.NAME] of the configuration makes one"
    _print(options, {"tenants": tenants}, *(tables.table(head, rows) if rows else [none]))
    return status


def _of(used: int, limit: int | None) -> str:
    return f"{used}" if limit is None else f"{used} of {limit}"


async def _reload(options: argparse.Namespace, servers: Servers) -> int:
    said, status = await _asked(servers, lambda each: each.ask("POST", "/v1/admin/reload", scope="admin", body={}))
    lines = []
    for server, each in said:
        lines.append(f"{server.url}: {_words('changed', each['changed']) or 'nothing has changed'}")
        more = (_words("needs a restart", each["needs_restart"]), _words("refused", each["refused"].values()))
        lines += [f"  {line}" for line in more if line]
    _print(options, {"servers": _with_servers(said)}, *lines)
    return status or int(any(each["refused"] for _, each in said))


def _words(what: str, keys: Any) -> str:
    return f"{what}: {tables.plain(', '.join(keys))}" if keys else ""


async def _log_level(options: argparse.Namespace, servers: Servers) -> int:
    wanted = {"level": options.level, "pjsip_level": options.pjsip}

    async def ask(server: RunningServer) -> Any:
        if options.level is None and options.pjsip is None:
            status = await _status_of(server)
            return {"level": status["log_level"], "pjsip_level": status["pjsip_level"]}
        body = {name: value for name, value in wanted.items() if value is not None}
        return await server.ask("PATCH", "/v1/admin/log", scope="admin", body=body)

    said, status = await _asked(servers, ask)
    lines = [f"{server.url}: {each['level']}, PJSIP {each['pjsip_level']}" for server, each in said]
    _print(options, {"servers": _with_servers(said)}, *lines)
    return status


async def _top(options: argparse.Namespace, servers: Servers) -> int:
    if not sys.stdout.isatty():
        raise ConfigError("top needs a terminal; `cc-tts status` and `cc-tts calls` print once")
    if not 0.2 <= options.interval <= 3600:  # noqa: PLR2004
        raise ConfigError("--interval is 0.2 to 3600 seconds")

    async def ask(server: RunningServer) -> tuple[Any, Any]:
        try:
            calls = await server.ask("GET", "/v1/calls", scope="read")
            return await _status_of(server), calls["calls"]
        except (NoServer, NotDone) as error:
            return error.detail, []

    await top(servers, ask, interval_s=options.interval, clock=CLOCK)
    return 0


_COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace, Servers], Awaitable[int]]]] = {
    "status": _status,
    "calls": _calls,
    "show": _show,
    "hangup": _hang_up,
    "say-to": _say_to,
    "trace": _trace,
    "workers": _workers,
    "tenants": _tenants,
    "reload": _reload,
    "loglevel": _log_level,
    "top": _top,
}
