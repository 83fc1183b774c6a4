"""The shell samples of the pages, run as they are printed against one server, and compared with the printed answers."""

import asyncio
import contextlib
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from cc_tts import wav_file
from cc_tts.calls.events.types import EVENTS
from cc_tts.errors import ConfigError
from cc_tts.vad.silero import find_model
from lab import needs
from lab.children import Child
from lab.ports import HOST, free_ports
from lab.server_under_test import EventLog, entries
from lab.softphone import SoftphoneProcess
from lab.waiting import until
from tests.architecture.state_tables import ROOT, error_classes
from tests.support.page_samples import (
    MORE,
    Block,
    blocks,
    document_faults,
    documents,
    line_faults,
    nearest_faults,
)

pytestmark = pytest.mark.e2e

PAGES: Final = (
    "docs/developers/README.md",
    "docs/developers/calls.md",
    "docs/developers/speak.md",
    "docs/developers/agents.md",
    "docs/developers/events.md",
    "docs/developers/api.md",
    "docs/telephony/dialplan.md",
    "docs/telephony/peers.md",
    "docs/telephony/sip.md",
    "docs/telephony/diagnosis.md",
    "README.md",
    "docs/operators/configure.md",
    "docs/operators/install.md",
    "docs/operators/observe.md",
    "docs/operators/run.md",
    "docs/operators/scale.md",
    "docs/operators/secure.md",
    "docs/operators/speech.md",
    "docs/operators/upgrade.md",
    "docs/operators/backup.md",
    "docs/plugs.md",
)
NOT_RUN: Final = {
    ".venv/bin/pip install -e '.[gpu]'": "downloads 3.1 GB",
    "cc-tts voices add zh --to voices ": "fetches 93 MB: tests/integration/test_voices_add.py",
    "cc-tts voices enrol anna": "wants PyTorch: tests/e2e/test_cloned_voice.py runs it",
    "cc-tts voices enrolled": "wants an enrolled voice: tests/e2e/test_cloned_voice.py has one",
    "sipp -sf sip/scenarios/answer_bye.xml": "wants SIPp: tests/e2e/test_server_with_sipp.py runs the scenario",
    "cc-tts worker --listen 10.0.0.5:7400": "another machine: tests/e2e/test_remote_worker_calls.py has one here",
    "cc-tts pool --listen 127.0.0.1:8090": "wants Ray: tests/integration/test_ray_pool.py",
    ".venv/bin/cc-tts call sip:agent@127.0.0.1 --probe": "wants an agent: tests/e2e/test_probe.py has one",
    "RAY_AUTH_MODE=token ray start": "a Ray cluster of several machines",
    "jq -s": "reads the accounting file of a server in use; its lines are compared below",
    "python3 -m venv /opt/cc-tts": "installs a service of systemd: tests/architecture/test_systemd_unit.py",
    "apt-get install ./cc-tts": "installs a package: deploy/deb/try.sh does, in CI",
    "python3 -m venv /tmp/new": "wants a new version from PyPI's packages: deploy/deb/build.sh installs the wheel so, in CI",
    "sha256sum --check": "wants a release: tests/integration/test_release.py",
    "umask 077": "packs the folder that this server writes to: tests/integration/test_backup.py",
    "tar -xpzf": "unpacks below /: tests/integration/test_backup.py, elsewhere",
    "helm upgrade": "wants Kubernetes",
    "   token() {": "wants Kubernetes",
    "curl -s http://127.0.0.1:8090/v1/voices -F": "wants the engine cosyvoice2: tests/integration/test_api_voices.py",
    "curl -X POST http://127.0.0.1:8090/v1/calls/$CALL/transfer": "wants a far side that takes REFER: test_transfers.py",
    "curl -X POST http://127.0.0.1:8090/v1/calls/$CALL/bridge": "wants a second call: test_bridges.py",
    "curl -X POST http://127.0.0.1:8090/v1/calls/$CALL/relay": "wants an application: test_relay_calls.py",
    "export CC_TTS_PJSUA2=server": "wants the server build and a server at another address: tests/e2e/test_tls_srtp.py",
}
"""Samples that a test cannot run, by the beginning of a line, with the reason."""
BESIDE: Final = (".venv/bin/cc-tts serve", "curl -sN", ".venv/bin/cc-tts call sip:hello@127.0.0.1:5070 --duration 60")
"""What the pages run in a terminal of its own."""
LAST: Final = "/v1/admin/drain"
NOT_LOGGED: Final = {
    "reloaded": "tests/e2e/test_reload.py",
    "requests_refused": "tests/e2e/test_inbound_auth.py",
}
"""Log lines that the pages print of what does not happen here, with the test in which it does."""
RTP_PORTS: Final = 40
START_TIMEOUT_S: Final = 60.0
SAMPLE_TIMEOUT_S: Final = 20.0
CURLRC: Final = 'write-out = "%{stderr}status %{http_code}\\n"\n'
"""Every curl says its status beside the answer."""

ALL: Final = [block for page in PAGES for block in blocks(ROOT, page)]
SHELL: Final = [block for block in ALL if block.language == "sh"]


def reason_not_to_run(block: Block) -> str | None:
    lines = block.text.splitlines()
    return next((why for begin, why in NOT_RUN.items() if any(line.startswith(begin) for line in lines)), None)


def is_beside(block: Block) -> bool:
    return block.text.startswith(BESIDE)


def test_every_command_is_in_a_block_of_the_shell() -> None:
    assert not [block.place for block in ALL if not block.language and block.has_command]


def test_every_sample_that_is_not_run_is_in_a_page() -> None:
    lines = [line for block in SHELL for line in block.text.splitlines()]
    assert not [begin for begin in NOT_RUN if not any(line.startswith(begin) for line in lines)]


def test_every_printed_problem_is_one_of_the_codes() -> None:
    known = {cls.code: cls for cls in error_classes() if "code" in vars(cls)}
    for block in ALL:
        for problem in printed(block, lambda each: str(each.get("type", "")).startswith("urn:cc-tts:problem:")):
            error = known[problem["code"]]
            assert (problem["title"], problem["status"]) == (error.title, error.http_status), block.place
            assert problem["type"].rpartition(":")[2] == problem["code"], block.place


def printed(block: Block, wanted: Any) -> Iterator[dict[str, Any]]:
    """JSON objects of this kind in an answer or another block without a language."""
    if not block.language:
        yield from (each for each in documents(block.text) if wanted(each))


def is_event(document: dict[str, Any]) -> bool:
    return document.get("type") in EVENTS


class Stage:
    """One server as the page starts it, what it has said, and the folder in which the samples run."""

    def __init__(self, folder: Path, phone: SoftphoneProcess) -> None:
        self.folder = folder
        self.phone = phone
        self.sip_port, self.http_port, self.rtp_port = free_ports(2), free_ports(), free_ports(RTP_PORTS)
        self.url = f"http://{HOST}:{self.http_port}"
        self.beside: dict[str, Child] = {}
        self.events = EventLog()
        self._environment = {
            "CURL_HOME": str(folder),
            "PATH": f"{folder / '.venv/bin'}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "CC_TTS_RTP__PORT_MIN": str(self.rtp_port),
            "CC_TTS_RTP__PORT_MAX": str(self.rtp_port + RTP_PORTS - 1),
            "CC_TTS_ACCOUNTING__FILE": str(folder / "accounting.jsonl"),
            "CC_TTS_RECORD__DIR": str(folder),
        }

    def prepare(self) -> None:
        """What a reader of the pages has: a checkout with its environment, and a configuration."""
        command = self.folder / ".venv/bin/cc-tts"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cc_tts.cli "$@"\n')
        command.chmod(0o755)
        (self.folder / ".curlrc").write_text(CURLRC)
        (self.folder / "cc_tts.toml").write_text(
            f"[sip]\nport = {self.sip_port}\n[http]\nport = {self.http_port}\n", encoding="utf-8"
        )
        wav_file.write(self.folder / "music.mp3", bytes(16_000), rate_hz=8000)  # libsndfile does not look at the name

    def here(self, text: str) -> str:
        text = re.sub(r"(127\.0\.0\.1:|http\.port=)(8090|8080)\b", rf"\g<1>{self.http_port}", text)
        text = re.sub(r"(127\.0\.0\.1:|sip\.port=)(5070|5060)\b", rf"\g<1>{self.sip_port}", text)
        return text.replace("/etc/cc-tts/cc_tts.toml", "cc_tts.toml")

    async def start(self, block: Block) -> Child:
        log = self.folder / f"beside{len(self.beside)}.log"
        script = f"exec {self.here(block.text)}"
        child = await Child.start(["bash", "-c", script], log_path=log, cwd=self.folder, env=self._environment)
        self.beside[block.place] = child
        return child

    async def run(self, block: Block) -> tuple[str, str, int]:
        """Standard output, standard error and exit status of a sample."""
        call = await self.call_id() if "$CALL" in block.text else ""
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            self.here(block.text),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
            env=self._environment | {"CALL": call},
        )
        try:
            async with asyncio.timeout(SAMPLE_TIMEOUT_S):
                out, err = await process.communicate()
        except TimeoutError:
            process.kill()
            raise TimeoutError(f"{block.place}: still running after {SAMPLE_TIMEOUT_S} s") from None
        assert process.returncode is not None
        return out.decode(), err.decode(), process.returncode

    async def get(self, path: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return await answer.json()

    async def until_ready(self, server: Child) -> None:
        async with asyncio.timeout(START_TIMEOUT_S):
            while True:
                assert server.returncode is None, server.log
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    if (await self.get("/readyz")) == {"status": "ready"}:
                        return
                await asyncio.sleep(0.05)

    async def call_id(self) -> str:
        """A call that is answered: the page's own while it is up, else one that the softphone places."""
        if not (found := await self._callers()):
            seen = self.num_events("call.established")
            await self.phone.dial(f"sip:hello@{HOST}:{self.sip_port}")
            await self.until_more("call.established", seen)
            found = await self._callers()
        return found[-1]

    async def _callers(self) -> list[str]:
        calls = (await self.get("/v1/calls?state=established"))["calls"]
        return [call["id"] for call in calls if "softphone" in call["caller"]]

    async def hang_up(self) -> None:
        if await self._callers():
            await self.phone.hangup()

    async def until_more(self, kind: str, seen: int) -> None:
        """Wait for an event of this type beyond the first ``seen``."""
        await until(lambda: self.num_events(kind) > seen)

    def num_events(self, kind: str) -> int:
        return sum(event["type"] == kind for event in self.events.events)


@pytest_asyncio.fixture(loop_scope="session")
async def stage(tmp_path: Path, phone: SoftphoneProcess) -> AsyncIterator[Stage]:
    for program in ("curl", "openssl"):
        if shutil.which(program) is None:
            needs.missing("peers", f"{program} is not installed")
    stage = Stage(tmp_path, phone)
    stage.prepare()
    server = await stage.start(next(block for block in SHELL if is_beside(block)))
    await stage.until_ready(server)
    async with aiohttp.ClientSession() as session, session.ws_connect(stage.url + "/v1/events") as socket:
        reader = asyncio.create_task(stage.events.read(socket))
        yield stage
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reader


async def test_the_samples_do_what_the_pages_say(stage: Stage) -> None:
    run = [block for block in SHELL if reason_not_to_run(block) is None]
    server_block, *others = [block for block in run if LAST not in block.text]
    faults = []
    for block in others:
        faults += [f"{block.place}: {fault}" for fault in await faults_of(stage, block)]
    utterances = await all_utterances(stage)
    for block in run:
        if LAST in block.text:
            faults += [f"{block.place}: {fault}" for fault in await faults_of(stage, block)]
    await stage.hang_up()
    assert await stage.beside[server_block.place].wait(SAMPLE_TIMEOUT_S) == 0
    faults += faults_of_what_came_by_itself(stage, utterances)
    assert not faults, "\n".join(faults)


async def faults_of(stage: Stage, block: Block) -> list[str]:
    """Run a sample as the page says; what is otherwise than printed."""
    if is_beside(block):
        await begin_beside(stage, block)
        return []
    if '"speech"' in block.text and not hears_speech():
        return []
    out, err, status = await stage.run(block)
    await do_what_is_printed(stage, block)
    if "-X PATCH" in block.text:  # what it changes is not for the samples after it
        await stage.hang_up()
    if "\ncall  " in block.answer:  # the report of the softphone in its own terminal
        out += await report_of_the_softphone(stage)
    return [*status_faults(block, err, status), *answer_faults(stage, block, out)]


async def begin_beside(stage: Stage, block: Block) -> None:
    heard = stage.num_events("speak.complete")
    child = await stage.start(block)
    if " call " in block.text:
        await stage.until_more("speak.complete", heard)
    else:
        await until(lambda: "retry: " in child.log)
        await do_what_is_printed(stage, block)


def hears_speech() -> bool:
    try:
        find_model()
    except ConfigError:
        return False
    return True


async def do_what_is_printed(stage: Stage, block: Block) -> None:
    for event in documents(block.answer):
        keys = event.get("data", {}).get("digits" if event.get("type") == "call.gather_complete" else "digit")
        if keys and is_event(event):
            seen = stage.num_events(event["type"])
            await stage.call_id()
            await stage.phone.dtmf(keys + (event["data"].get("terminator") or ""))
            await stage.until_more(event["type"], seen)


async def report_of_the_softphone(stage: Stage) -> str:
    (child,) = (child for child in stage.beside.values() if "INVITE to" in child.log or " answered" in child.log)
    assert await child.wait(SAMPLE_TIMEOUT_S) == 0, child.log
    return child.log[child.log.index("call  ") :]


def status_faults(block: Block, err: str, status: int) -> list[str]:
    """The exit status, and the status of every curl: the printed problem's, else 2xx."""
    refused = [each["status"] for each in documents(block.answer) if "code" in each]
    wanted = rf"{refused[0]}" if refused else r"2\d\d"
    answered = re.findall(r"^status (\d+)$", err, re.MULTILINE)
    faults = [f"{each} came instead of {wanted}" for each in answered if not re.fullmatch(wanted, each)]
    is_doctor = " doctor " in block.text  # 1 where this machine has a fault
    return faults if status == 0 or is_doctor else [*faults, f"exit status {status}: {err[-500:]}"]


def answer_faults(stage: Stage, block: Block, out: str) -> list[str]:
    """Compare what came with the answer; events come by another way."""
    if not block.answer:
        return []
    answer = stage.here(block.answer)
    if " doctor --config" in block.text:
        return doctor_faults(answer, out)
    wanted = [each for each in documents(answer) if not is_event(each)]
    came = list(documents(out))
    faults = [f"{len(wanted)} answers are printed, {len(came)} came"] if len(wanted) > len(came) else []
    for one, other in zip(wanted, came, strict=False):
        faults += document_faults(one, other)
    return faults if wanted else [*faults, *(line_faults(answer, out) if not any(documents(answer)) else [])]


def doctor_faults(answer: str, out: str) -> list[str]:
    """Every printed check is one of the doctor's; what it finds depends on the machine, its words at one level do not."""
    faults = []
    for line in answer.splitlines():
        level_and_check, check = line[:22], line[5:22]
        if not any(each[5:22] == check for each in out.splitlines()):
            faults.append(f"no check {check.strip()}")
        came = [finding(each) for each in out.splitlines() if each[:22] == level_and_check]
        if came and finding(line) not in came:
            faults.append(f"{finding(line)} is printed, {came} came")
    return faults


def finding(line: str) -> str:
    return re.sub(r"[\d.]+:\d+", "ADDRESS", line.partition("  →")[0])


async def all_utterances(stage: Stage) -> list[Any]:
    ids = [event["data"]["utterance_id"] for event in stage.events.events if event["type"] == "speak.complete"]
    return [await stage.get(f"/v1/utterances/{each}") for each in ids]


def faults_of_what_came_by_itself(stage: Stage, utterances: list[Any]) -> list[str]:
    log = stage.beside[next(iter(stage.beside))].log
    accounting = [json.loads(line) for line in (stage.folder / "accounting.jsonl").read_text().splitlines()]
    faults = []
    for block in ALL:
        for each in printed(block, lambda _document: True):
            if is_event(each):
                found = event_faults(each, stage.events.events)
            elif "event" in each and "process" in each:
                found = log_faults(each, log)
            elif each.get("type") in ("call", "utterance"):
                lines = [line for line in accounting if line["type"] == each["type"]]
                found = nearest_faults(each, lines, has_values=False)
            elif str(each.get("id", "")).startswith("utt_") and each["state"] == "complete":
                found = nearest_faults(each, utterances)
            else:
                continue
            faults += [f"{block.place}: {each.get('type', each.get('event'))}: {fault}" for fault in found]
    return faults


def event_faults(event: dict[str, Any], seen: list[dict[str, Any]]) -> list[str]:
    """An event of a type that did not happen here has at least the fields of its type."""
    if candidates := [each for each in seen if each["type"] == event["type"]]:
        return nearest_faults(event, candidates)
    fields = {field.encode_name for field in msgspec.structs.fields(EVENTS[event["type"]])}
    return [f"{name} is no field of it" for name in event["data"] if name not in (*fields, MORE)]


def log_faults(line: dict[str, Any], log: str) -> list[str]:
    if line["event"] in NOT_LOGGED:
        return []
    return nearest_faults(line, entries(log, line["event"]), has_values=False)
