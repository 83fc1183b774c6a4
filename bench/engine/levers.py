"""What the engine's levers gain on each card, calculated: the real engine on a roofline model of the card.

python -m bench.engine.levers [--models CosyVoice2,CosyVoice3] [--cards L4,H100] [--name engine_levers]

Everybody listens all the time to sentences of 2 to 10 s. *Streams* is the largest number of :data:`LADDER` with first audio
under ``--target-ms`` at p95, at most 1 % of sentences with an underrun and at most 2 % refused, of three seeds. No card was
at hand: right to a factor of two at best, and better between levers than between cards. The engine's own work is that of
CosyVoice2 for both models.
"""

import argparse
import itertools
import math
import random
import statistics
import tempfile
from bisect import bisect_left
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

from bench.engine.costs import CARDS, LEVERS, MODELS, WITHOUT_KERNELS, Card, with_model
from bench.engine.phone import always
from bench.engine.simulated import FixedClock, Overlap, Simulated, measure
from bench.report import RESULTS, machine, save
from cc_tts import logs
from cc_tts.engines.cosyvoice.engine.engine import Engine
from lab.server_under_test import Json

LADDER: Final = (
    2,
    4,
    6,
    8,
    10,
    12,
    14,
    16,
    20,
    24,
    28,
    32,
    40,
    48,
    56,
    64,
    80,
    96,
    112,
    128,
    144,
    160,
    192,
    224,
    256,
    320,
)
TARGET_MS: Final = 300.0
MOST_REFUSED: Final = 0.02
MOST_SHORT: Final = 0.01
SEEDS: Final = (1, 2, 3)


class Ladder:
    """Rungs of one card, each measured once with each seed."""

    def __init__(self, simulated: Simulated, arguments: argparse.Namespace) -> None:
        self._simulated = simulated
        self._arguments = arguments
        self._cells: dict[int, list[Json]] = {}

    def cells(self, count: int) -> list[Json]:
        if count not in self._cells:
            self._cells[count] = [self._cell(count, seed) for seed in SEEDS]
        return self._cells[count]

    def _cell(self, count: int, seed: int) -> Json:
        self._arguments.seed = seed
        return measure(self._simulated, Engine, always(count, random.Random(count + seed)), self._arguments)

    def is_carried(self, count: int) -> bool:
        cells = self.cells(count)
        sentences, refused = (sum(cell[name] for cell in cells) for name in ("sentences", "refused"))
        short = sum(cell["sentences"] * (cell["underrun_rate"]["any"] or 0.0) for cell in cells)
        return bool(
            max(cell["first_audio_ms"].get("p95", math.inf) for cell in cells) < self._arguments.target_ms
            and short <= MOST_SHORT * sentences
            and refused <= MOST_REFUSED * (refused + sentences)
        )

    def most(self) -> int:
        """The highest rung that is carried, by halves: above one that is not carried none is; 0 if none is."""
        return ([0, *LADDER])[bisect_left(LADDER, 1, key=lambda count: int(not self.is_carried(count)))]


def of_card(card: Card, arguments: argparse.Namespace) -> Json:
    with tempfile.TemporaryDirectory() as folder:
        ladder = Ladder(Simulated(Path(folder), FixedClock(), card, overlap=arguments.overlap), arguments)
        streams = ladder.most()
        alone = statistics.fmean(cell["first_audio_ms"]["p50"] for cell in ladder.cells(1))
        full = ladder.cells(max(1, streams))
    return {
        "streams": streams,
        "p95_ms": round(max(cell["first_audio_ms"]["p95"] for cell in full)),
        "alone_ms": round(alone),
        "gaps": {
            name: max(cell["underrun_rate"][name] or 0.0 for cell in full) for name in ("over_100_ms", "over_200_ms")
        },
        "pages": int(card.state_bytes / card.page_bytes),
        "most_pages": max(cell["max_pages"] for cell in full),
        "flow_call_ms": {rows: round(card.flow_ms(rows, 50 * rows, 500), 1) for rows in (1, 16)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--cards", default=",".join(CARDS))
    parser.add_argument("--target-ms", type=float, default=TARGET_MS, help="first audio at p95, at most")
    parser.add_argument("--overlap", choices=get_args(Overlap), default="free", help="as of bench.engine.simulated")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--planning-us", type=float, default=5.0, help="of a step, for each stream")
    parser.add_argument("--name", help="save NAME.json")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    logs.configure(level="error", json=False, process="bench")
    result: Json = {
        "machine": machine(),
        "what": "calculated: no card was at hand",
        "seconds": arguments.seconds,
        "target_ms": arguments.target_ms,
        "overlap": arguments.overlap,
    }
    for model, name in itertools.product(arguments.models.split(","), arguments.cards.split(",")):
        card = with_model(CARDS[name], model)
        cells = result.setdefault(model, {})[name] = {}
        for lever, changes in (LEVERS if card.has_kernels else WITHOUT_KERNELS).items():
            cells[lever] = of_card(replace(card, **changes), arguments)
            print(f"{model} {name:9} {lever:22} {cells[lever]}", flush=True)
        if arguments.name:
            save(arguments.name, result, arguments.out)


if __name__ == "__main__":
    main()
