"""WAV files that commands write: whole, or not at all."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from cc_tts import wav_file

pytestmark = pytest.mark.unit

ROOM_BYTES = 4096


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Have the kernel refuse what a file has beyond :data:`ROOM_BYTES`, as a disk does that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("is_there", [False, True])
def test_a_disk_that_fills_up_leaves_no_shortened_file(tmp_path: Path, *, is_there: bool) -> None:
    path = tmp_path / "said.wav"
    if is_there:
        path.write_bytes(b"of before")
    with pytest.raises(OSError, match="too large"):
        wav_file.write(path, bytes(2 * ROOM_BYTES), rate_hz=8000)
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_never_removed(tmp_path: Path) -> None:
    link = tmp_path / "full.wav"
    link.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space"):
        wav_file.write(link, bytes(80), rate_hz=8000)
    assert link.is_symlink()
