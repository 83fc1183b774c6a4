"""The engine's own work, and its schedule on a simulated GPU: the real engine over a device that only counts.

python -m bench.engine.simulated [--calls 1,64,128,256] [--seconds 30] [--name engine_simulated]

The loads are those of ``bench.engine.phone``. The device computes nothing; each call takes the time that a roofline model of
a card expects (``--card``), and the engine's own work the processor time that it takes here, in the same thread and on the
same clock, as with a GPU. So ``host_ms`` is measured; ``first_audio_ms`` and ``most_sustained`` hold as far as the costs
do, and do not count what the runner itself does for a call.

With ``--planning-us N`` the engine's own work in a step is taken to be 0.1 ms and N µs a stream. Then nothing depends on the
machine or on what else it does: two schedules can be compared.
"""

import argparse
import copy
import random
import tempfile
from collections.abc import Mapping
from collections.abc import Sequence as Row
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from bench.engine.clock import WorkClock
from bench.engine.costs import CARDS, Card, simulated_costs
from bench.engine.front import SizedFront
from bench.engine.model import NUM_CODES, voices
from bench.engine.phone import BURST_S, STAGGER_MS, always, burst, most_sustained, poisson
from bench.engine.phone_load import Caller, PhoneLoad, figures
from bench.report import RESULTS, machine, percentiles, save
from cc_tts import logs
from cc_tts.clock import NS_PER_MS
from cc_tts.engines.cosyvoice.batched import NUM_POSITIONS
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.device import PagesExhausted, Sampled, SlotPrefill, SpeakJob, SpokenBatch
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS, FRAMES_PER_TOKEN, LOOKAHEAD_TOKENS
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import SpeechIds
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.runners.graphs import bucket_of
from cc_tts.engines.cosyvoice.runners.lm import ROW_BUCKETS
from cc_tts.engines.cosyvoice.runners.vocoder import CROSSFADE_FRAMES
from lab.cosyvoice import tiny_model
from lab.server_under_test import Json

BYTES_PER_FRAME: Final = 960
MAX_STREAMS: Final = 320
STEP_MS: Final = 0.1
LOADS: Final = ("always", "burst", "poisson")
CARD: Final = "H200"
Overlap = Literal["none", "free", "one"]
"""Whether the language model runs beside flow and vocoder, and what it then costs them. *Free*: beginning kernels costs the
other nothing, and both have what bandwidth and sums they need, or as much of it as there is. *One*: the card does one thing
at a time, first what the language model asks for, so nothing is gained.
"""
LEAST_MS: Final = 1e-5


class FixedClock(WorkClock):
    """Goes on by what it is told to skip, and by nothing else."""

    def now_ns(self) -> int:
        return self._skipped_ns


@dataclass(slots=True)
class _Slot:
    """What a sequence has had of the device."""

    num_prompt: int
    num_to_sample: int
    num_sampled: int = 0
    num_told: int = 0
    num_spoken: int = 0
    num_given: int = 0
    num_pages: int = 0
    """Besides those of its voice."""


@dataclass(slots=True)
class SimulatedCall:
    """A call under way; see :class:`cc_tts.engines.cosyvoice.engine.device.Speaking`. It goes on with the clock."""

    device: "SimulatedDevice"
    pieces: Row[bytes]
    cost_ms: tuple[float, float]
    begin_ns: int
    seen_ns: int
    left_ms: float
    """Of its work, at ``seen_ns``."""
    end_ns: int = 0

    @property
    def share(self) -> float:
        """Of the card's bandwidth or sums that it uses by itself."""
        return _share_of(sum(self.cost_ms), self.device.costs.latency_ms.call)

    def go_on(self, speed: float = 1.0) -> None:
        """The clock went on, and so did the work."""
        now_ns = self.device.clock.now_ns()
        done_ms, self.seen_ns = speed * (now_ns - self.seen_ns) / NS_PER_MS, now_ns
        if self.left_ms > 0.0 and done_ms >= self.left_ms:
            self.end_ns = now_ns - int((done_ms - self.left_ms) / speed * NS_PER_MS)
        self.left_ms -= done_ms

    def wait(self, limit_ms: float) -> bool:
        self.go_on()
        if self.left_ms > 0.0:
            self.device.rest(min(limit_ms, self.left_ms + LEAST_MS))
            self.go_on()
        return self.left_ms <= 0.0

    def batch(self) -> SpokenBatch:
        """What it took is in proportion to what it would have taken alone."""
        longer = (self.end_ns - self.begin_ns) / NS_PER_MS / sum(self.cost_ms)
        flow_ms, vocoder_ms = self.cost_ms
        return SpokenBatch(self.pieces, flow_ms * longer, vocoder_ms * longer)


@dataclass(slots=True)
class SimulatedDevice:
    """See :class:`cc_tts.engines.cosyvoice.engine.device.Device`; every voice is kept."""

    clock: WorkClock
    num_prompts: Mapping[str, int]
    num_slots: int
    num_pages: int
    costs: Card = CARDS[CARD]
    max_tokens: int = NUM_POSITIONS
    silent_tokens: frozenset[int] = frozenset()
    num_not_finite: int = 0
    device_ms: float = 0.0
    num_free_pages: int = 0
    overlap: Overlap = "none"
    call: "SimulatedCall | None" = None
    _slots: dict[int, _Slot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.num_free_pages = self.num_pages - sum(_final(count) for count in self.num_prompts.values())

    def start(self, prefills: Row[SlotPrefill]) -> None:
        """Every text is a sequence of its own here."""
        for each in prefills:
            assert not each.prefill.extends
            self._slots[each.slot] = _Slot(
                self.num_prompts[each.voice_id], each.prefill.rules.max_sampled, num_sampled=1
            )
        self._sample(1, self.costs.prefill_ms(sum(len(each.prefill.inputs) for each in prefills)))

    def decode(self, until: Mapping[int, int], num_steps: int) -> Mapping[int, Sampled]:
        """So many tokens more for each."""
        for number, limit in until.items():
            slot = self._slots[number]
            slot.num_sampled = min(slot.num_to_sample, limit, slot.num_sampled + num_steps)
        self._sample(num_steps, self.costs.lm_step_ms(self.num_rows))
        return {number: _news(slot) for number, slot in self._slots.items()}

    def speak(self, jobs: Row[SpeakJob]) -> SimulatedCall:
        """Silence of the right length, but for what the seam holds back."""
        needs = [self._pages_wanted(self._slots[job.slot], len(job.tokens)) for job in jobs]
        if sum(needs) > self.num_free_pages:
            raise PagesExhausted(f"{sum(needs)} pages are needed and {self.num_free_pages} are free")
        pieces, num_frames, num_keys = [], 0, 0
        for job, need in zip(jobs, needs, strict=True):
            slot = self._slots[job.slot]
            slot.num_pages += need
            self.num_free_pages -= need
            slot.num_spoken += len(job.tokens)
            end = slot.num_spoken if job.is_last else _on_grid(slot)
            new, keys = (end - slot.num_given) * FRAMES_PER_TOKEN, (slot.num_prompt + end) * FRAMES_PER_TOKEN
            held = (0 if job.is_last else CROSSFADE_FRAMES) - (0 if job.is_first else CROSSFADE_FRAMES)
            pieces.append(bytes(max(0, new - held) * BYTES_PER_FRAME))
            num_frames, num_keys = max(num_frames, new), max(num_keys, keys)
            slot.num_given = end
        num_rows, all_frames = len(jobs), len(jobs) * num_frames
        spoken_ms = self.costs.flow_ms(num_rows, all_frames, num_keys), self.costs.vocoder_ms(all_frames)
        begin_ns = self.clock.now_ns()
        self.call = SimulatedCall(self, pieces, spoken_ms, begin_ns, begin_ns, sum(spoken_ms))
        return self.call

    def release(self, slot: int, *, wipe: bool = False) -> None:
        del wipe
        gone = self._slots.pop(slot, None)
        self.num_free_pages += gone.num_pages if gone else 0

    def forget(self, voice_id: str) -> None:
        """Nothing is kept of voices."""

    def pages_needed(self, voice_id: str, num_tokens: int) -> int:
        return _own_pages(self.num_prompts[voice_id], num_tokens)

    @property
    def num_rows(self) -> int:
        """All up to the highest slot in use, filled up: what a step computes, whichever are sampled."""
        return min(bucket_of(max(self._slots, default=0) + 1, ROW_BUCKETS), self.num_slots)

    @property
    def num_used(self) -> int:
        return len(self._slots)

    def _pages_wanted(self, slot: _Slot, num_new: int) -> int:
        return max(0, _own_pages(slot.num_prompt, slot.num_spoken + num_new) - slot.num_pages)

    def _sample(self, times: int, each_ms: float) -> None:
        """Work of the language model, slower while a call is under way; the call is, too."""
        left_ms, call = times * each_ms, self.call
        if call is not None:
            call.go_on()
        if call is not None and call.left_ms > 0.0:
            speed = 1.0 / max(1.0, _share_of(each_ms, self.costs.latency_ms.lm) + call.share)
            together_ms = min(left_ms, call.left_ms)
            if self.overlap == "one":
                self.rest(left_ms)
                call.go_on(0.0)
                return
            self.rest(together_ms / speed)
            call.go_on(speed)
            left_ms -= together_ms
        self.rest(left_ms)

    def rest(self, ms: float) -> None:
        """The host waits for so long."""
        self.device_ms += ms
        self.clock.rest(ms)


class Simulated:
    """Makes engines over such devices."""

    def __init__(self, folder: Path, clock: WorkClock, card: Card = CARDS[CARD], *, overlap: Overlap = "free") -> None:
        self.clock = clock
        self._overlap = overlap
        self.speakers = voices("full")
        tokenizer = folder / "tokenizer"
        tiny_model.write_tokenizer(tokenizer)
        self._front = SizedFront(
            TextTokenizer.from_directory(tokenizer),
            self.speakers,
            speech_ids=SpeechIds(NUM_CODES["full"]),
            num_positions=NUM_POSITIONS,
        )
        self._card = card
        self._costs = simulated_costs(self._card)

    def device(self, max_streams: int) -> SimulatedDevice:
        """As many slots as a worker would have for so many streams."""
        prompts = {voice_id: len(speaker.flow_tokens) for voice_id, speaker in self.speakers.items()}
        num_slots = max_streams + max(1, max_streams // 8)
        num_pages = min(int(self._card.state_bytes / self._card.page_bytes), 40 * num_slots)
        return SimulatedDevice(self.clock, prompts, num_slots, num_pages, self._card, overlap=self._overlap)

    def engine(self, device: SimulatedDevice, kind: type[Engine], max_streams: int, *, target_ms: float) -> Engine:
        config = EngineConfig(
            first_audio_target_ms=target_ms,
            max_streams=max_streams,
            overlaps=self._overlap != "none",
            stops_runaways=False,  # its speech is one token again and again
            guard_ms=self._costs.guard_ms(EngineConfig().guard_ms),
            first_hop_tokens=self._costs.first_hop(EngineConfig().first_hop_tokens),
        )
        voice_id = next(iter(self.speakers))
        return kind(device, self._front, copy.deepcopy(self._costs), config, typical_voice=voice_id, clock=self.clock)


def measure(simulated: Simulated, kind: type[Engine], callers: list[Caller], arguments: argparse.Namespace) -> Json:
    device = simulated.device(MAX_STREAMS)
    engine = simulated.engine(device, kind, MAX_STREAMS, target_ms=arguments.target_ms)
    own_ms: list[float] = []
    step = engine.step

    def timed() -> Row[object]:
        begin_ns, device_ms = simulated.clock.now_ns(), device.device_ms
        if arguments.planning_us is not None:
            simulated.clock.rest(STEP_MS + arguments.planning_us / 1000.0 * device.num_used)
        outs = step()
        own_ms.append((simulated.clock.now_ns() - begin_ns) / NS_PER_MS - (device.device_ms - device_ms))
        return outs

    engine.step = timed  # type: ignore[method-assign, assignment]
    load = PhoneLoad(engine, simulated.clock, seed=arguments.seed)
    is_burst = not callers[0].speaks_on and callers[0].next_ms == callers[-1].next_ms
    for_ms = 1000.0 * (min(arguments.seconds, BURST_S) if is_burst else arguments.seconds)
    tally = load.run(
        callers,
        for_ms=for_ms,
        warm_up_ms=0.0 if is_burst else min(STAGGER_MS, for_ms / 2),
        num_pages_used=lambda: device.num_pages - device.num_free_pages,
    )
    engine.close()
    return figures(tally) | {"host_ms": percentiles(own_ms), "host_share": round(sum(own_ms) / tally.wall_ms, 3)}


def _callers(load: str, count: int, arguments: argparse.Namespace) -> list[Caller]:
    draw = random.Random(count)
    if load == "burst":
        return burst(count)
    return poisson(count, 1000.0 * arguments.seconds, draw) if load == "poisson" else always(count, draw)


def run(arguments: argparse.Namespace) -> Json:
    calls = [int(each) for each in arguments.calls.split(",")]
    loads: Json = {}
    card = CARDS[arguments.card]
    result: Json = {
        "what": arguments.what,
        "costs": "a decode step costs what the rows cost that it computes: all up to the highest slot in use",
        "card": arguments.card,
        "overlap": arguments.overlap,
        "seconds": arguments.seconds,
        "first_audio_target_ms": arguments.target_ms,
        "planning_us_a_stream": arguments.planning_us,
        "pages": int(card.state_bytes / card.page_bytes),
        "loads": loads,
    }
    with tempfile.TemporaryDirectory() as folder:
        clock = WorkClock() if arguments.planning_us is None else FixedClock()
        simulated = Simulated(Path(folder), clock, card, overlap=arguments.overlap)
        for load in arguments.loads.split(","):
            loads[load] = {}
            for count in calls:
                cell = loads[load][str(count)] = measure(simulated, Engine, _callers(load, count, arguments), arguments)
                _print(load, count, cell)
        result["most_sustained"] = most_sustained(loads.get("always", {}), arguments.target_ms)
    return result


def _print(load: str, count: int, cell: Json) -> None:
    first, host = cell["first_audio_ms"], cell["host_ms"]
    print(
        f"{load:8} {count:>4}  first audio p50 {first.get('p50', '-'):>7} p95 {first.get('p95', '-'):>7} ms"
        f"  underruns {cell['underrun_rate']['any']}  refused {cell['refused']:>4}  pages {cell['max_pages']:>4}"
        f"  host p50 {host['p50']:>5} p99 {host['p99']:>6} ms",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", default="1,16,64,128,192,224,256")
    parser.add_argument("--card", choices=list(CARDS), default=CARD, help="one of bench.engine.costs")
    parser.add_argument("--overlap", choices=get_args(Overlap), default="free", help="of language model and flow")
    parser.add_argument("--loads", default=",".join(LOADS), help="which of them")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--target-ms", type=float, default=300.0)
    parser.add_argument("--planning-us", type=float, help="of a step, for each stream; measured without")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--what", default="the schedule as it is", help="which schedule this is, for the file")
    parser.add_argument("--name", help="save NAME.json")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    logs.configure(level="error", json=False, process="bench")
    result = run(arguments)
    if arguments.name:
        print(f"\nsaved {save(arguments.name, {'machine': machine(), **result}, arguments.out)}")


def _news(slot: _Slot) -> Sampled:
    news, slot.num_told = slot.num_sampled - slot.num_told, slot.num_sampled
    return Sampled((0,) * news, slot.num_sampled == slot.num_to_sample)


def _share_of(cost_ms: float, latency_ms: float) -> float:
    return max(0.0, 1.0 - latency_ms / cost_ms)


def _own_pages(num_prompt: int, num_tokens: int) -> int:
    return -(-(num_prompt + num_tokens) // CHUNK_TOKENS) - _final(num_prompt)


def _final(num_prompt: int) -> int:
    return max(0, num_prompt - LOOKAHEAD_TOKENS) // CHUNK_TOKENS


def _on_grid(slot: _Slot) -> int:
    num_known = slot.num_prompt + slot.num_spoken - LOOKAHEAD_TOKENS
    return num_known // CHUNK_TOKENS * CHUNK_TOKENS - slot.num_prompt


if __name__ == "__main__":
    main()
