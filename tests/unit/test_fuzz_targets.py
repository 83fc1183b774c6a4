"""The targets of the fuzzer, without the fuzzer: what they begin with, and some thousand changes of it."""

import random

import pytest

from tests.fuzz.targets import TARGETS

pytestmark = pytest.mark.unit

NUM_CHANGES = 100


def changed(seed: bytes, rng: random.Random) -> bytes:
    """A few bytes replaced, doubled, or cut out."""
    data = bytearray(seed)
    for _ in range(rng.randint(1, 4)):
        begin = rng.randrange(len(data) + 1)
        end = min(len(data), begin + rng.randint(0, 8))
        data[begin:end] = rng.choice((b"", rng.randbytes(3), data[begin:end] * 3, b"\xb2", b"\r\n", b";", b'"'))
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_bytes_are_refused_in_order(name: str) -> None:
    target = TARGETS[name]
    rng = random.Random(name)
    for seed in (*target.seeds, b"", b"\xff"):
        target(seed)
        for _ in range(NUM_CHANGES if name != "text" else 5):
            target(changed(seed, rng))
