"""The table of voices in the documents, from what ``bench.intelligibility`` and ``bench.spoken_calls`` measured."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from lab.server_under_test import Json

RESULTS: Final = Path(__file__).parents[1] / "bench" / "results"
HEAD: Final = (
    "language", "voice", "studio", "G.711", "3 % lost", "lines",
    "core for 1 s", "first audio, ms: 1 call", "4 calls", "16 calls", "memory, MiB",
)  # fmt: skip
LANGUAGES: Final[Mapping[str, str]] = {
    "zh": "Chinese", "en": "English", "es": "Spanish", "fr": "French", "it": "Italian", "pt": "Portuguese",
}  # fmt: skip
LEVELS: Final = (1, 4, 16)


def rows() -> Iterator[list[str]]:
    """The best understood voice of a language comes first."""
    heard = _results("intelligibility")["voices"]
    calls = _results("voices_on_calls")["voices"]
    order = list(LANGUAGES)
    for voice, result in sorted(
        heard.items(), key=lambda each: (order.index(each[1]["language"]), each[1]["conditions"]["line"]["rate"])
    ):
        shares = [_share(result["conditions"][name], result["language"]) for name in ("studio", "line", "lossy")]
        cost = "–" if result["cost"] is None else f"{result['cost']:.3f}"
        cells = (f"`{voice}`", *shares, str(result["lines"]), cost, *_on_calls(calls.get(voice)))
        yield [LANGUAGES[result["language"]], *cells]


def _share(figures: Json, language: str) -> str:
    """The share of wrong units, and of words where units are characters."""
    units = f"{100 * figures['rate']:.1f}"
    return units if language == "zh" else f"{units} ({100 * figures['word_rate']:.1f})"


def _on_calls(result: Json | None) -> tuple[str, ...]:
    """The median and the 95th percentile of first audio, or the share of prompts that were refused or failed."""
    if result is None:
        return ("–",) * (len(LEVELS) + 1)
    by_calls = {each["calls"]: each for each in result["levels"]}
    return *(_first_audio(by_calls[number]) for number in LEVELS), f"{result['worker_mib']:.0f}"


def _first_audio(level: Json) -> str:
    times = level["time_to_first_audio_ms"]
    failed = sum(level["refused"].values()) + sum(level["errors"].values())
    spoken = f"{times['p50']:.0f} (p95 {times['p95']:.0f})" if times["n"] else ""
    return ", ".join(filter(None, (spoken, f"{failed} of {failed + times['n']} refused" if failed else "")))


def _results(name: str) -> Json:
    path = RESULTS / f"{name}.json"
    found: Json = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"voices": {}}
    return found
