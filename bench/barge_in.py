"""How soon the caller's speech silences a prompt, and what listening costs: measured at the caller's socket.

    python -m bench.barge_in [--interruptions 60] [--legs 4 12]

The prompt is a tone without gaps, so that its last packet tells when it was cut. The caller speaks with the voices of
espeak-ng at -24 dBFS, through G.711.
"""

import argparse
import asyncio
import contextlib
import random
import tempfile
from pathlib import Path
from typing import Any, Final

from bench.first_audio import Line, dial
from bench.lab import Json, LabServer, machine, percentiles, save, show
from bench.sip_load import cpu_s
from bench.softphone import SoftphoneProcess
from cc_tts.config.schema import SpeechBargeIn
from cc_tts.media.g711 import ulaw_encode
from tests.support.caller_audio import SENTENCE, pcm_of, said

SENTENCES: Final = (
    ("en-us", SENTENCE),
    ("en-gb", "Hello, can you hear me?"),
    ("de", "Guten Tag, ich habe eine Frage zu meiner Rechnung."),
    ("fr-fr", "Bonjour, je voudrais parler à quelqu'un."),
)
TONE: Final = {"tone": "440", "duration_ms": 60_000}
LEGS_A_PHONE: Final = 4
WINDOW_S: Final = 10.0
PROCESSES: Final = {"ua": "cc_tts.ua", "vad": "cc_tts.vad"}


def recordings(folder: Path, *, repeat: int = 1) -> list[Path]:
    """What the caller says, as octets of μ-law."""
    paths = []
    for number, (voice, text) in enumerate(SENTENCES):
        path = folder / f"{number}.ulaw"
        path.write_bytes(ulaw_encode(pcm_of(said(text, -24.0, voice))) * repeat)
        paths.append(path)
    return paths


async def interruptions(count: int) -> Json:
    """From the first packet of speech to the last packet of the tone."""
    generator = random.Random(1)
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(await LabServer.start("calls.barge_in_speech=true"))
        phone = await stack.enter_async_context(await SoftphoneProcess.start())
        log = await stack.enter_async_context(server.events())
        line = await dial(server, phone, "c")
        said_ns: list[int] = []
        onsets: list[float] = []
        spoken = recordings(folder)
        for number in range(count):
            name = f"tone-{number}"
            await server.post(f"/v1/calls/{line.call_id}/play", TONE | {"utterance_id": name})
            await log.wait("speak.started", utterance_id=name)
            await asyncio.sleep(generator.uniform(0.5, 1.5))
            said_ns.append((await phone.say(spoken[number % len(spoken)], call=line.name))["at_ns"])
            done = (await log.wait("speak.complete", utterance_id=name))["data"]
            assert done["interrupted_by"] == "speech", done
            await log.wait("call.speech_stopped", speech_id=done["speech_id"])
            onsets.append((await log.wait("call.speech_started", speech_id=done["speech_id"]))["data"]["at_ms"])
            await asyncio.sleep(0.5)
        report = await phone.hangup(call=line.name)
    ends = [spurt["end_at_ns"] for spurt in report["talkspurts"]]
    took = [next(end for end in ends if end > at_ns) - at_ns for at_ns in said_ns]
    established_ns = report["answered_at_ns"]
    off = [onset - (at_ns - established_ns) / 1e6 for onset, at_ns in zip(onsets, said_ns, strict=True)]
    return {
        "min_speech_ms": SpeechBargeIn().min_speech_ms,
        "speech_to_last_packet_ms": percentiles([each / 1e6 for each in took]),
        "onset_off_ms": percentiles(off),
    }


async def listening_cost(num_legs: int) -> Json:
    """CPU of each process, in percent of a core a leg, while a protected prompt plays: not listened to, listened to while
    the caller is silent, and while the caller speaks without end.
    """
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(await LabServer.start())
        phones = [
            await stack.enter_async_context(await SoftphoneProcess.start()) for _ in range(-(-num_legs // LEGS_A_PHONE))
        ]
        lines: list[tuple[SoftphoneProcess, Line]] = []
        for number in range(num_legs):
            phone = phones[number // LEGS_A_PHONE]
            lines.append((phone, await dial(server, phone, f"c{number}")))
        for _, line in lines:
            await server.post(
                f"/v1/calls/{line.call_id}/play", {"tone": "440", "duration_ms": 120_000, "barge_in": {"speech": False}}
            )
        found: Json = {"legs": num_legs, "not_listened_to": await _cpu(server, num_legs)}
        for _, line in lines:
            await server.patch(f"/v1/calls/{line.call_id}", {"barge_in": {"speech": True}})
        await asyncio.sleep(2.0)
        found["caller_silent"] = await _cpu(server, num_legs)
        spoken = recordings(folder, repeat=10)
        for number, (phone, line) in enumerate(lines):
            await phone.say(spoken[number % len(spoken)], call=line.name)
        await asyncio.sleep(1.0)
        found["caller_speaks"] = await _cpu(server, num_legs)
        for phone, line in lines:
            await phone.hangup(call=line.name)
    return found


async def _cpu(server: LabServer, num_legs: int) -> dict[str, Any]:
    pids = {"server": [server.process.pid], **{name: server.pids_of(module) for name, module in PROCESSES.items()}}
    before = {name: sum(map(cpu_s, each)) for name, each in pids.items()}
    await asyncio.sleep(WINDOW_S)
    return {
        name: round((sum(map(cpu_s, each)) - before[name]) / WINDOW_S / num_legs * 100, 3)
        for name, each in pids.items()
    }


async def run(arguments: argparse.Namespace) -> Json:
    """Interruptions, then each number of legs."""
    result: Json = {"bench": "barge_in", "machine": machine()}
    print(f"{arguments.interruptions} interruptions …", flush=True)
    found = result["interruptions"] = await interruptions(arguments.interruptions)
    show(
        "speech into a tone",
        [
            ("first packet of speech to silence", found["speech_to_last_packet_ms"]),
            ("onset that is reported, after that packet", found["onset_off_ms"]),
        ],
    )
    result["cpu_percent_of_a_core_a_leg"] = []
    for num_legs in arguments.legs:
        result["cpu_percent_of_a_core_a_leg"].append(cost := await listening_cost(num_legs))
        print(cost)
    return result


def main() -> None:
    """Run and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interruptions", type=int, default=60)
    parser.add_argument("--legs", type=int, nargs="*", default=[4])
    arguments = parser.parse_args()
    result = asyncio.run(run(arguments))
    print(f"\nsaved {save('barge_in', result)}")


if __name__ == "__main__":
    main()
