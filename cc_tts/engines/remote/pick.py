"""Chooses the worker for an utterance: first its generation, then the better one of two random workers.

::

    key of the call ─▸ tiers of generations ─▸ two workers with free capacity, at random ─▸ the better one
    0.05 of the calls: {canary}, then {newest}, then the older ones;   the others: {newest}, …, {canary} last

Pure: no I/O and no clock, so that a simulation runs the same code.
"""

import random
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeVar

from cc_tts.audio import PTIME_MS
from cc_tts.engines.engine_core import EngineLoad

NUM_COMPARED: Final = 2
"""The number of random workers with free capacity that are compared. If all were compared, every server would choose the
same worker until the next report.
"""
EQUAL_WITHIN_MS: Final = float(PTIME_MS)
"""Predictions of first audio that differ by less than this are equal for a caller: audio leaves once a tick of the media
clock.
"""

_VERSION: Final = re.compile(r"v?(\d+(?:\.\d+)*)(?:[.-]?(dev|alpha|a|beta|b|rc|post)[.-]?(\d*))?(?:\+[A-Za-z0-9.-]*)?")
_STAGES: Final = {"dev": 0, "a": 1, "alpha": 1, "b": 2, "beta": 2, "rc": 3, None: 4, "post": 5}
_Age = tuple[tuple[int, ...], int, int]

Worker = TypeVar("Worker", bound=Hashable)


@dataclass(frozen=True, slots=True)
class WorkerCapacity:
    """The capacity of a worker for a stream that is opened now. ``room``: the number of streams that it would
    still accept.
    """

    generation: str
    first_audio_ms: float
    utilisation: float
    room: int


def capacity_of(load: EngineLoad, *, num_opened: int, generation: str) -> WorkerCapacity:
    """Return the capacity from the worker's last report, reduced by the ``num_opened`` streams that we have opened since
    then. Each of these delays the first audio by its share, and uses its share of the free capacity.
    """
    left = max(0.0, 1.0 - load.utilisation)
    return WorkerCapacity(
        generation=generation,
        first_audio_ms=load.first_audio_ms * (1 + num_opened / max(1, load.num_streams)),
        utilisation=load.utilisation + left * num_opened / max(1, load.room),
        room=max(0, load.room - num_opened),
    )


def pick(
    capacities: Mapping[Worker, WorkerCapacity], *, key: str, weights: Mapping[str, float], rng: random.Random
) -> Worker | None:
    """The worker for a stream, ``None`` if none has free capacity. ``key``: the id of its call; streams with the same key
    prefer the same generation. ``weights``: see :func:`tiers`.
    """
    for tier in tiers({capacity.generation for capacity in capacities.values()}, weights, key):
        free = [worker for worker, capacity in capacities.items() if capacity.room > 0 and capacity.generation in tier]
        if free:
            return _better(rng.sample(free, min(NUM_COMPARED, len(free))), capacities)
    return None


def tiers(generations: AbstractSet[str], weights: Mapping[str, float], key: str) -> list[frozenset[str]]:
    """Return the generations in the order in which a stream tries them. ``weights``: the share of all keys, 0 to 1, of each
    generation that is named there, decided by a hash of the key. The other keys go to the generations that are not named,
    the newest first, and try the named ones last.
    """
    chosen = _chosen(weights, key)
    first = [frozenset({chosen})] if chosen is not None and chosen in generations else []
    named = {each for each in generations if each in weights and each != chosen}
    some = {each for each in named if weights[each] > 0}
    return [*first, *_newest_first(generations - weights.keys()), *_newest_first(some), *_newest_first(named - some)]


def _newest_first(generations: Collection[str]) -> list[frozenset[str]]:
    """Return the versions by age; labels that are no versions come last, together."""
    by_age: dict[_Age | None, set[str]] = {}
    for each in generations:
        by_age.setdefault(_age(each), set()).add(each)
    ages = sorted((age for age in by_age if age is not None), reverse=True)
    return [frozenset(by_age[age]) for age in (*ages, None) if age in by_age]


def _age(generation: str) -> _Age | None:
    """Return a sort key as PEP 440 orders releases, pre-releases and post-releases; ``None`` for no version."""
    if (match := _VERSION.fullmatch(generation)) is None:
        return None
    release = [int(number) for number in match[1].split(".")]
    while release and not release[-1]:
        release.pop()
    return tuple(release), _STAGES[match[2]], int(match[3] or 0)


def _chosen(weights: Mapping[str, float], key: str) -> str | None:
    """Return the named generation of a key; ``None`` if it belongs to the others."""
    place = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big") / 2**64
    for generation in sorted(weights):
        if place < weights[generation]:
            return generation
        place -= weights[generation]
    return None


def _better(compared: Sequence[Worker], capacities: Mapping[Worker, WorkerCapacity]) -> Worker:
    """Return the better one of one or two workers in random order."""
    first, second = capacities[compared[0]], capacities[compared[-1]]
    is_later = first.first_audio_ms - second.first_audio_ms
    is_worse = is_later > 0 if abs(is_later) >= EQUAL_WITHIN_MS else first.utilisation > second.utilisation
    return compared[-1] if is_worse else compared[0]
