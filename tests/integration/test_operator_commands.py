"""The commands for the person on call, over the API as the server runs it."""

import asyncio
import dataclasses
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

from cc_tts import cli, logs
from cc_tts.api.admin.operations import Operations, Process, Reloaded, SpeechWorker
from cc_tts.api.http.problems import NotReady
from cc_tts.config.schema import TenantConfig, TokenConfig
from cc_tts.config.sections.log import LogConfig
from cc_tts.errors import ConfigError
from cc_tts.processes.peer import ProcessState
from tests.fakes.running_api import RunningApi, make_config, running_api
from tests.support.captured_logs import capture_logs
from tests.support.served_app import served_app

pytestmark = pytest.mark.integration

OPERATOR, READER, ACME = "the-operators-token", "a-token-that-reads", "token-of-acme"
TOKENS = (TokenConfig(OPERATOR), TokenConfig(READER, scopes=("read",)), TokenConfig(ACME, tenant="acme"))


class FakeOperations:
    """A reload that fails if it is told to, and levels that can be set."""

    def __init__(self) -> None:
        self.log = LogConfig()
        self.failure: Exception | None = None

    async def reload(self) -> Reloaded:
        if self.failure is not None:
            raise self.failure
        return Reloaded(changed=["routes.a"], needs_restart=["sip.port"], refused={})

    async def set_log(self, wanted: LogConfig) -> None:
        self.log = wanted

    @property
    def seen_by_api(self) -> Operations:
        worker = SpeechWorker(
            name="gpu-1:7400",
            where="elsewhere",
            state=ProcessState.BACKOFF,
            device="cuda:0",
            generation="2",
            draining=False,
            streams=None,
            room=None,
            utilisation=None,
            first_audio_ms=None,
            problem="Connection refused",
        )
        ua = Process(name="ua", state=ProcessState.READY, pid=17, num_restarts=1)
        return Operations(
            reload=self.reload,
            log=lambda: self.log,
            set_log=self.set_log,
            processes=lambda: [ua],
            workers=lambda: [worker],
            started_at_s=1.0,
        )


@pytest.fixture
def operations() -> FakeOperations:
    return FakeOperations()


@pytest.fixture
def logged() -> Iterator[list[logs.Line]]:
    """What the server logs, which shares a process with the command here."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
async def api(operations: FakeOperations, logged: list[logs.Line]) -> AsyncIterator[RunningApi]:
    config = dataclasses.replace(make_config(tokens=TOKENS), tenants={"acme": TenantConfig(max_calls=3)})
    async with running_api(config, operations=operations.seen_by_api) as running:
        running.registry.add("call_17", answered=True).tenant = "acme"
        running.registry.add("call_23", answered=True)
        yield running


Run = Callable[..., Any]


@pytest.fixture
def run(api: RunningApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command with a token; returns the status, what it printed, and what it complained of."""

    async def run(*arguments: str, token: str = OPERATOR, server: str = "") -> tuple[int, str, str]:
        monkeypatch.setenv("CC_TTS_TOKEN", token)
        where = server or f"127.0.0.1:{api.port}"
        status = await asyncio.to_thread(cli.main, [*arguments, "--server", where])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


async def test_status(run: Run, api: RunningApi) -> None:
    status, printed, _ = await run("status")
    assert status == 0
    for line in ("state          ready", "calls          2 of 8", "log level      info, PJSIP 1"):
        assert line in printed.splitlines()
    assert "ua       ready  17   1 restarts" in printed.splitlines()
    api.registry.not_ready = "the speech engine: all are lost"
    status, printed, _ = await run("status", token=READER)
    assert status == 1
    assert "NOT READY: the speech engine: all are lost" in printed


async def test_status_as_json_has_what_the_api_has(run: Run, api: RunningApi) -> None:
    _, printed, _ = await run("status", "--json")
    (found,) = json.loads(printed)["servers"]
    answered = await api.ask("GET", "/v1/admin/status", headers={"Authorization": f"Bearer {READER}"})
    assert found == {"server": f"http://127.0.0.1:{api.port}", **answered.json}
    assert found["started_at"] == 1.0


async def test_calls_are_those_of_the_token(run: Run) -> None:
    assert (await run("calls", "--ids"))[:2] == (0, "call_17\ncall_23\n")
    assert (await run("calls", "--ids", token=ACME))[:2] == (0, "call_17\n")
    status, printed, _ = await run("calls")
    assert status == 0
    assert printed.splitlines()[1].split()[:4] == ["call_17", "in", "established", "alice"]


async def test_calls_by_the_hundred(run: Run, api: RunningApi) -> None:
    for number in range(400):
        api.registry.add(f"call_many_{number:03}", answered=True)
    status, printed, _ = await run("calls", "--json")
    assert status == 0
    assert len(json.loads(printed)["calls"]) == 402


async def test_a_call_is_shown_with_what_was_said(run: Run, api: RunningApi) -> None:
    status, printed, _ = await run("say-to", "17", "Your table is ready.")
    assert status == 0
    said = printed.split(":")[0]
    assert api.registry.prompts[said].content.text == "Your table is ready."  # type: ignore[union-attr]
    status, printed, _ = await run("show", "17")
    assert ["caller", "sip:alice@127.0.0.1"] in [line.split() for line in printed.splitlines()]
    assert any(line.startswith(said) for line in printed.splitlines())
    found = json.loads((await run("show", "call_17", "--json"))[1])
    assert [each["id"] for each in found["utterances"]] == [said]


@pytest.mark.parametrize(("text", "typed"), [("\udcc4\udce3", b""), ("-", "您好".encode("gbk"))])
async def test_a_text_in_another_encoding(run: Run, monkeypatch: pytest.MonkeyPatch, text: str, typed: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8"))
    status, printed, complaint = await run("say-to", "17", text)
    assert (status, printed) == (2, "")
    assert "the text is not in utf-8" in complaint
    assert len(complaint.splitlines()) == 1


async def test_a_call_is_hung_up(run: Run) -> None:
    assert (await run("hangup", "call_17"))[:2] == (0, "call_17: completed: local_hangup\n")
    assert (await run("calls", "--ids"))[1] == "call_23\n"
    assert (await run("calls", "--ids", "--all"))[1] == "call_17\ncall_23\n"


async def test_workers_and_tenants(run: Run) -> None:
    _, printed, _ = await run("workers")
    assert printed.splitlines()[1].split() == [
        *("gpu-1:7400", "elsewhere", "backoff", "cuda:0", "2", "-", "-", "-", "-", "Connection", "refused")
    ]
    _, printed, _ = await run("tenants")
    assert printed.splitlines()[1].startswith("acme    0 of 3")


async def test_reload(run: Run, operations: FakeOperations) -> None:
    status, printed, _ = await run("reload")
    assert status == 0
    assert printed.endswith("changed: routes.a\n  needs a restart: sip.port\n")
    operations.failure = ConfigError("sip.prot is no key")
    status, _, complaint = await run("reload")
    assert status == 1
    assert "sip.prot is no key; `cc-tts check-config --config FILE` on its machine says more" in complaint
    operations.failure = NotReady("the server is starting")
    assert "the server is starting; `cc-tts status` says why" in (await run("reload"))[2]


async def test_log_level(run: Run, operations: FakeOperations) -> None:
    assert (await run("loglevel", token=READER))[1].endswith(": info, PJSIP 1\n")
    assert (await run("loglevel", "debug", "--pjsip", "4"))[1].endswith(": debug, PJSIP 4\n")
    assert (operations.log.level, operations.log.pjsip_level) == ("debug", 4)
    assert (await run("loglevel", "warning"))[1].endswith(": warning, PJSIP 4\n")


async def test_a_change_is_in_the_log(run: Run, logged: list[logs.Line]) -> None:
    await run("status")
    await run("loglevel", "debug")
    (line,) = (each for each in logged if each["event"] == "administered")
    assert (line["route"], line["source"], len(line["by"])) == ("/v1/admin/log", "127.0.0.1", 12)
    assert OPERATOR not in str(logged)


@pytest.mark.parametrize(
    ("arguments", "token", "complaint"),
    [
        (["calls"], "not-a-known-token", "this token is not known; name the configuration"),
        (["hangup", "call_17"], READER, "the token lacks the scope call; use another token"),
        (["reload"], READER, "the token lacks the scope admin; use another token"),
        (["status"], ACME, "this one is of a tenant; use another token"),
        (["show", "call_23"], ACME, "no call has the id"),
        (["hangup", "nobody"], OPERATOR, "`cc-tts calls --all` lists the 2 that are kept"),
    ],
)
async def test_a_refusal_says_what_to_do_next(run: Run, arguments: list[str], token: str, complaint: str) -> None:
    status, printed, complained = await run(*arguments, token=token)
    assert (status, printed) == (1, "")
    assert complaint in complained
    assert len(complained.splitlines()) == 1


async def test_a_server_that_is_not_there(run: Run, api: RunningApi) -> None:
    status, _, complaint = await run("status", server="127.0.0.1:1")
    assert status == 1
    assert complaint.startswith("cc-tts: No answer: nobody answers at http://127.0.0.1:1 (")
    assert "`cc-tts serve` starts a server there" in complaint
    assert (await run("status", server="a..b:80"))[0] == 1
    status, printed, complaint = await run("calls", "--ids", "--server", f"127.0.0.1:{api.port}", server="127.0.0.1:1")
    assert (status, printed) == (1, "call_17\ncall_23\n")
    assert "nobody answers" in complaint
    status, printed, complaint = await run("drain", "--server", "127.0.0.1:2", server="127.0.0.1:1")
    assert (status, printed, complaint.count("nobody answers")) == (1, "", 2)


async def test_a_server_of_something_else(run: Run) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="<html>It works</html>", content_type="text/html")

    async with served_app(web.get("/{path:.*}", answer)) as port:
        status, printed, complaint = await run("status", server=f"127.0.0.1:{port}")
    assert (status, printed) == (1, "")
    assert "it is no control API of cc-tts" in complaint
    assert len(complaint.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["calls", "--server", "ftp://x"], "write HOST:PORT, http://HOST:PORT or https://HOST"),
        (["calls", "--set", "http.port=0"], "name the server with --server"),
        (
            ["reload", "--set", 'http.tokens=[{token="may-only-read", scopes=["read"]}]'],
            "http.tokens: none has the scope admin, which this command needs",
        ),
        (["top"], "`cc-tts calls` print once"),
    ],
)
def test_what_a_command_line_lacks(
    arguments: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CC_TTS_TOKEN", raising=False)
    assert cli.main(arguments) == 2
    assert complaint in capsys.readouterr().err
