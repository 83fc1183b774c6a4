"""What attention over pages gains on each card, calculated: the real engine on a roofline model of the card.

python -m bench.engine.levers [--cards L4,H100] [--seconds 20] [--name engine_levers]

Everybody listens all the time to sentences of 2 to 10 s. *Streams* is the largest number of :data:`LADDER` with first audio
under 300 ms at p95, no underrun and at most 2 % refused; it is searched for by halves, so it counts on that more are never
easier. No card was at hand: right to a factor of two at best, and better between levers than between cards.
"""

import argparse
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.engine.costs import DEVICES, LEVERS, Card
from bench.engine.phone import always
from bench.engine.simulated import FixedClock, Simulated, measure
from bench.report import RESULTS, machine, save
from cc_tts import logs
from cc_tts.engines.cosyvoice.engine.engine import Engine
from lab.server_under_test import Json

LADDER: Final = (2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256)
TARGET_MS: Final = 300.0
MOST_REFUSED: Final = 0.02
ROOFLINES: Final = [name for name, card in DEVICES.items() if isinstance(card, Card)]


class Ladder:
    """Rungs of one card, each measured once."""

    def __init__(self, simulated: Simulated, arguments: argparse.Namespace) -> None:
        self._simulated = simulated
        self._arguments = arguments
        self.cells: dict[int, Json] = {}

    def cell(self, count: int) -> Json:
        if count not in self.cells:
            callers = always(count, random.Random(count))
            self.cells[count] = measure(self._simulated, Engine, callers, self._arguments)
        return self.cells[count]

    def is_carried(self, count: int) -> bool:
        cell = self.cell(count)
        asked = cell["refused"] + cell["sentences"]
        return bool(
            cell["first_audio_ms"].get("p95", TARGET_MS) < TARGET_MS
            and not cell["underrun_rate"]["any"]
            and cell["refused"] <= MOST_REFUSED * asked
        )

    def most(self) -> int:
        """The last rung that is carried; 0 if none is."""
        low, high = -1, len(LADDER)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.is_carried(LADDER[middle]) else (low, middle)
        return LADDER[low] if low >= 0 else 0


def of_card(card: Card, arguments: argparse.Namespace) -> Json:
    with tempfile.TemporaryDirectory() as folder:
        ladder = Ladder(Simulated(Path(folder), FixedClock(), card), arguments)
        streams = ladder.most()
        alone = ladder.cell(1)["first_audio_ms"]
    result: Json = {"streams": streams, "pages": int(card.state_bytes / card.page_bytes), "alone_ms": alone["p50"]}
    result["flow_call_ms"] = {rows: round(card.flow_ms(rows, 50 * rows, 500), 1) for rows in (1, 16)}
    if streams:
        cell = ladder.cell(streams)
        result |= {"p95_ms": cell["first_audio_ms"]["p95"], "max_pages": cell["max_pages"]}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cards", default=",".join(ROOFLINES))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--planning-us", type=float, default=5.0, help="of a step, for each stream")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", help="save NAME.json")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    arguments.target_ms = TARGET_MS
    logs.configure(level="error", json=False, process="bench")
    cards: Json = {}
    result: Json = {"machine": machine(), "what": "calculated: no card was at hand", "seconds": arguments.seconds}
    result["cards"] = cards
    for name in arguments.cards.split(","):
        cards[name] = {}
        for lever, changes in LEVERS.items():
            card = DEVICES[name]
            assert isinstance(card, Card)
            cards[name][lever] = of_card(replace(card, **changes), arguments)
            print(f"{name:9} {lever:24} {cards[name][lever]}", flush=True)
        if arguments.name:
            save(arguments.name, result, arguments.out)


if __name__ == "__main__":
    main()
