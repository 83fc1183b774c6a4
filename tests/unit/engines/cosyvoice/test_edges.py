"""Fades and the end of what a sequence says."""

import numpy as np
import pytest

from cc_tts.engines.cosyvoice.edges import soften

pytestmark = pytest.mark.unit

MS = 24


def tone(ms: int, level: int = 8000) -> np.ndarray:
    return np.full(ms * MS, level, "<i2")


def softened(samples: np.ndarray, *, is_first: bool = False, is_last: bool = False) -> np.ndarray:
    return np.frombuffer(soften(samples.tobytes(), is_first=is_first, is_last=is_last), "<i2")


def test_what_is_between_the_ends_is_as_it_was() -> None:
    pcm = tone(100).tobytes()
    assert soften(pcm, is_first=False, is_last=False) is pcm
    assert soften(b"", is_first=True, is_last=True) == b""


def test_the_beginning_rises_for_5_ms() -> None:
    heard = softened(tone(100), is_first=True)
    assert heard[0] == 0
    assert (np.diff(heard[: 5 * MS].astype(int)) > 0).all()
    assert (heard[5 * MS :] == 8000).all()
    assert len(heard) == 100 * MS


def test_the_end_falls_for_15_ms() -> None:
    heard = softened(tone(100), is_last=True)
    assert heard[-1] == 0
    assert (np.diff(heard[-15 * MS :].astype(int)) < 0).all()
    assert (heard[: -15 * MS] == 8000).all()
    assert len(heard) == 100 * MS


@pytest.mark.parametrize("quiet_ms", [0, 50, 200, 210, 900])
def test_quiet_at_the_end_is_left_out_beyond_200_ms(quiet_ms: int) -> None:
    rng = np.random.default_rng(1)
    hiss = rng.integers(-60, 61, quiet_ms * MS).astype("<i2")
    heard = softened(np.concatenate((tone(100), hiss)), is_last=True)
    assert len(heard) == (100 + min(quiet_ms, 200)) * MS
    assert heard[-1] == 0


@pytest.mark.parametrize("num_samples", [1, 7, 100, 239, 241])
def test_pieces_of_any_length_have_soft_ends(num_samples: int) -> None:
    heard = softened(np.full(num_samples, 9000, "<i2"), is_first=True, is_last=True)
    assert len(heard) == num_samples
    assert heard[0] == heard[-1] == 0


def test_a_whole_sequence_of_silence_is_short() -> None:
    assert len(softened(tone(3000, 3), is_first=True, is_last=True)) == 200 * MS
