"""Recordings on the disk: while they are written, after a crash, and until they are removed."""

import errno
import os
import wave
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from cc_tts import atomic_file
from cc_tts.recorder import writer
from cc_tts.recorder.info import Gap, RecordingInfo, RecordingPlan
from cc_tts.recorder.store import RecordingStore
from cc_tts.recorder.wav import WavFormat
from cc_tts.recorder.writer import RecordingFile

pytestmark = pytest.mark.unit

FRAME = np.full(160, 8000, "<i2").tobytes()
SILENCE = bytes(320)


def plan(folder: Path, **more: Any) -> RecordingPlan:
    limits = {name: more.pop(name) for name in tuple(more) if name in RecordingPlan.__struct_fields__}
    info = RecordingInfo(**{"recording_id": "r1", "call_id": "c1", "encoding": "pcm16", **more})
    return RecordingPlan(**{"info": info, "folder": str(folder), "max_duration_ms": 60_000, **limits})


def frames(file: RecordingFile, num: int, received: bytes = FRAME, sent: bytes = SILENCE) -> Any:
    return file.take(received * num + sent * num, 0)


def as_wav(path: Path) -> tuple[int, int, np.ndarray[Any, Any]]:
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return file.getnchannels(), file.getframerate(), samples


def killed(folder: Path, num_frames: int, **more: Any) -> None:
    """Leave what a process leaves behind that was killed: the lock goes with it."""
    file = RecordingFile(plan(folder, **more))
    frames(file, num_frames)
    os.close(file._file)  # noqa: SLF001 - as the kernel does


def test_the_caller_is_left_and_we_are_right(tmp_path: Path) -> None:
    file = RecordingFile(plan(tmp_path, channels="dual"))
    ours = np.full(160, -5, "<i2").tobytes()
    frames(file, 3, sent=ours)
    info = file.finish("stopped")
    num_channels, rate_hz, samples = as_wav(tmp_path / "r1.wav")
    assert (num_channels, rate_hz, info.state, info.duration_ms) == (2, 8000, "saved", 60)
    assert set(samples[0::2]) == {8000}
    assert set(samples[1::2]) == {-5}
    assert info.num_bytes == (tmp_path / "r1.wav").stat().st_size


@pytest.mark.parametrize(("channels", "tracks"), [("dual", "both"), ("mono", "agent")])
def test_what_comes_as_ulaw_is_in_the_file_as_it_came(tmp_path: Path, channels: Any, tracks: Any) -> None:
    wanted = plan(tmp_path, channels=channels, tracks=tracks, encoding="ulaw")
    assert wanted.comes_encoded
    file = RecordingFile(wanted)
    file.take(b"\x11" * 320 + b"\x22" * 320, 0)
    file.take(b"\x11" * 160 + b"\x22" * 160, 1)
    info = file.finish("stopped")
    data = (tmp_path / "r1.wav").read_bytes()[-640 * (2 if channels == "dual" else 1) :]
    assert info.duration_ms == 80
    ours = data[1::2] if channels == "dual" else data
    assert ours == b"\x22" * 320 + b"\xff" * 160 + b"\x22" * 160
    if channels == "dual":
        assert data[0::2] == b"\x11" * 320 + b"\xff" * 160 + b"\x11" * 160


@pytest.mark.parametrize(
    "more", [{"channels": "mono"}, {"trim_silence": True}, {"silence_timeout_ms": 100}, {"encoding": "pcm16"}]
)
def test_samples_that_are_added_or_measured_come_as_pcm(tmp_path: Path, more: Any) -> None:
    assert not plan(tmp_path, **{"channels": "dual", "encoding": "ulaw", **more}).comes_encoded


def test_mono_is_the_sum_without_wrapping_round(tmp_path: Path) -> None:
    file = RecordingFile(plan(tmp_path))
    loud = np.full(160, 30_000, "<i2").tobytes()
    frames(file, 1, received=loud, sent=loud)
    file.finish("stopped")
    assert set(as_wav(tmp_path / "r1.wav")[2]) == {32767}


def test_lost_frames_are_silence_and_are_counted(tmp_path: Path) -> None:
    file = RecordingFile(plan(tmp_path))
    file.take(FRAME + SILENCE, 0)
    file.take(FRAME + SILENCE, 2)
    info = file.finish("stopped")
    samples = as_wav(tmp_path / "r1.wav")[2].reshape(-1, 160)
    assert [bool(each.any()) for each in samples] == [True, False, False, True]
    assert (info.lost_ms, info.duration_ms, info.gaps) == (40, 80, (Gap(20, 40),))


def test_gaps_are_told_where_they_are_in_a_file_whose_silence_was_cut_off(tmp_path: Path) -> None:
    file = RecordingFile(plan(tmp_path, trim_silence=True))
    file.take(SILENCE * 100, 5)
    file.take(FRAME * 10 + SILENCE * 10, 0)
    file.take(b"", 3)
    file.take(FRAME * 10 + SILENCE * 10, 4)
    info = file.finish("stopped")
    assert info.gaps == (Gap((writer.KEPT_SILENCE_FRAMES + 10) * 20, 140),)
    assert info.lost_ms == 240


def test_a_gap_makes_no_recording_longer_than_its_longest(tmp_path: Path) -> None:
    file = RecordingFile(plan(tmp_path, max_duration_ms=1000))
    assert file.take(FRAME + SILENCE, 60) == "max_duration"
    assert file.finish("max_duration").duration_ms == 1000


@pytest.mark.parametrize("encoding", ["ulaw", "pcm16"])
@pytest.mark.parametrize("num_channels", [1, 2])
def test_the_header_tells_the_length_of_the_file(encoding: Any, num_channels: int) -> None:
    header = WavFormat(encoding, num_channels, 8000).header(1000)
    assert int.from_bytes(header[4:8], "little") == len(header) + 1000 - 8
    assert int.from_bytes(header[-4:], "little") == 1000
    assert int.from_bytes(header[20:22], "little") == (7 if encoding == "ulaw" else 1)


def test_the_header_of_a_file_that_is_written_lags_5_s_at_most(tmp_path: Path) -> None:
    file = RecordingFile(plan(tmp_path))
    for _ in range(7):
        frames(file, writer.WRITE_FRAMES)
    assert len(as_wav(tmp_path / "r1.wav.part")[2]) == writer.HEADER_FRAMES * 160
    file.finish("stopped")


def test_files_are_readable_to_their_user_alone(tmp_path: Path) -> None:
    folder = RecordingStore(tmp_path / "new").prepare("acme")
    RecordingFile(plan(folder)).finish("stopped")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}


def test_what_a_killed_process_left_is_completed(tmp_path: Path) -> None:
    killed(tmp_path, 60)
    (info,) = RecordingStore(tmp_path).settle()
    assert (info.state, info.reason, info.duration_ms) == ("saved", "recovered", 1200)
    assert len(as_wav(tmp_path / "r1.wav")[2]) == 60 * 160
    assert not (tmp_path / "r1.wav.part").exists()


def test_half_a_frame_at_the_end_of_a_file_is_cut_off(tmp_path: Path) -> None:
    killed(tmp_path, 60)
    with (tmp_path / "r1.wav.part").open("ab") as file:
        file.write(b"\1" * 33)
    (info,) = RecordingStore(tmp_path).settle()
    assert info.duration_ms == 1200
    assert info.num_bytes == (tmp_path / "r1.wav").stat().st_size


def test_a_file_that_lacks_its_header_is_completed_too(tmp_path: Path) -> None:
    killed(tmp_path, 0)
    os.truncate(tmp_path / "r1.wav.part", 5)
    (info,) = RecordingStore(tmp_path).settle()
    assert (info.state, info.duration_ms) == ("saved", 0)
    assert len(as_wav(tmp_path / "r1.wav")[2]) == 0


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    file = RecordingFile(plan(tmp_path))
    frames(file, 60)
    assert RecordingStore(tmp_path).settle() == []
    assert file.finish("stopped").reason == "stopped"


def test_a_recording_whose_audio_is_gone_has_failed(tmp_path: Path) -> None:
    killed(tmp_path, 60)
    (tmp_path / "r1.wav.part").unlink()
    (info,) = RecordingStore(tmp_path).settle()
    assert (info.state, info.reason) == ("failed", "storage_error")


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    folder, other = tmp_path / "recordings", tmp_path / "other"
    folder.mkdir()
    other.write_bytes(b"x" * 1000)
    killed(folder, 60)
    (folder / "r1.wav.part").unlink()
    (folder / "r1.wav.part").symlink_to(other)
    assert RecordingStore(folder).settle() == []
    assert other.read_bytes() == b"x" * 1000


def test_a_recording_ends_at_its_longest(tmp_path: Path) -> None:
    file = RecordingFile(plan(tmp_path, max_duration_ms=1000))
    assert frames(file, 49) is None
    assert frames(file, 9) == "max_duration"
    assert file.finish("max_duration").duration_ms == 1000


def test_silence_ends_a_recording_and_is_trimmed(tmp_path: Path) -> None:
    file = RecordingFile(plan(tmp_path, silence_timeout_ms=1000, trim_silence=True))
    assert frames(file, 40, received=SILENCE) is None
    assert frames(file, 5) is None
    assert frames(file, 50, received=SILENCE) == "silence"
    info = file.finish("silence")
    assert info.duration_ms == (2 * writer.KEPT_SILENCE_FRAMES + 5) * 20
    assert as_wav(tmp_path / "r1.wav")[2].reshape(-1, 160).any(axis=1).sum() == 5


def test_a_disk_that_is_full_begins_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="min_free_bytes"):
        RecordingFile(plan(tmp_path / "new", min_free_bytes=1 << 60))
    assert list((tmp_path / "new").iterdir()) == []


def test_a_disk_that_becomes_full_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RecordingFile(plan(tmp_path, min_free_bytes=1))
    full = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "fstatvfs", lambda _file: full)
    with pytest.raises(OSError, match="min_free_bytes") as caught:
        frames(file, writer.HEADER_FRAMES)
    assert caught.value.errno == errno.ENOSPC
    info = file.finish(writer.failure_of(caught.value), "failed")
    assert (info.state, info.reason, info.duration_ms) == ("failed", "disk_full", 5000)


def test_a_disk_that_takes_no_last_frames_leaves_those_before_and_nothing_after_a_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RecordingFile(plan(tmp_path))
    frames(file, writer.WRITE_FRAMES)
    frames(file, 5)

    def full(_file: int, _data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        info = file.finish("stopped")
    assert (info.state, info.reason, info.duration_ms) == ("failed", "disk_full", 1000)
    assert len(as_wav(tmp_path / "r1.wav")[2]) == 8000
    RecordingStore(tmp_path).delete(info)
    assert list(tmp_path.iterdir()) == []


def test_on_a_full_disk_the_end_of_the_audio_makes_room_for_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RecordingFile(plan(tmp_path))
    frames(file, 100)
    full_bytes = (tmp_path / "r1.wav.part").stat().st_size
    write = atomic_file.write

    def on_full_disk(path: Path, data: bytes, **options: Any) -> None:
        if (tmp_path / "r1.wav").stat().st_size > full_bytes - 2 * 4096:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data, **options)

    monkeypatch.setattr(atomic_file, "write", on_full_disk)
    info = file.finish("stopped")
    assert (info.state, info.reason) == ("failed", "disk_full")
    assert 0 < info.duration_ms < 2000
    assert len(as_wav(tmp_path / "r1.wav")[2]) == info.duration_ms * 8
    assert RecordingStore(tmp_path).find("r1", "") == (info, tmp_path / "r1.wav")


def test_audio_that_could_not_be_completed_is_removed_with_its_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RecordingFile(plan(tmp_path))
    frames(file, 60)

    def broken(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    info = file.finish("stopped")
    assert (info.state, info.reason) == ("failed", "storage_error")
    RecordingStore(tmp_path).delete(info)
    assert list(tmp_path.iterdir()) == []


def kept(store: RecordingStore, recording_id: str, tenant: str = "") -> RecordingInfo:
    folder = store.prepare(tenant)
    file = RecordingFile(plan(folder, recording_id=recording_id, tenant=tenant))
    info = file.finish("stopped")
    store.note(info)
    return info


def test_a_tenant_finds_its_own_recordings_only(tmp_path: Path) -> None:
    store = RecordingStore(tmp_path)
    kept(store, "mine", "acme")
    assert store.find("mine", "acme") is not None
    assert store.find("mine", "") is not None
    assert store.find("mine", "other") is None
    assert [each.recording_id for each in store.newest("other", limit=9)] == []
    assert store.has("mine"), "no other tenant may take the id"


@pytest.mark.parametrize(
    "recording_id", ["../r1", "a/b", "/etc/passwd", ".hidden", "", "r1\n", "tenant=acme/mine", "a\0b"]
)
def test_an_id_that_is_a_path_finds_nothing(tmp_path: Path, recording_id: str) -> None:
    store = RecordingStore(tmp_path / "recordings")
    kept(store, "mine", "acme")
    (tmp_path / "r1.json").write_bytes(msgspec.json.encode(RecordingInfo(recording_id="r1", call_id="c1")))
    assert store.find(recording_id, "") is None


def test_what_is_too_old_is_removed_and_the_rest_stays(tmp_path: Path) -> None:
    store = RecordingStore(tmp_path)
    for recording_id in ("old", "new"):
        kept(store, recording_id)
    os.utime(tmp_path / "old.json", (1000, 1000))
    killed(tmp_path, 60, recording_id="live")
    os.utime(tmp_path / "live.live", (1000, 1000))
    assert store.expire(2000) == 1
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["live.live", "live.wav.part", "new.json", "new.wav"]


def test_a_deleted_recording_does_not_come_back(tmp_path: Path) -> None:
    store = RecordingStore(tmp_path)
    info = RecordingFile(plan(tmp_path)).finish("stopped")
    store.delete(info)
    store.mark_told(info)
    store.note(info)
    assert list(tmp_path.iterdir()) == []


def test_the_url_of_an_upload_is_forgotten_once_all_is_done(tmp_path: Path) -> None:
    store = RecordingStore(tmp_path)
    info = RecordingFile(plan(tmp_path, upload_url="https://b.example/?secret=1")).finish("stopped")
    store.mark_told(info)
    assert [each.is_told for each in store.settle()] == [True]
    store.note(info)
    assert store.settle() == []
    assert b"secret" not in (tmp_path / "r1.json").read_bytes()
    assert msgspec.json.decode((tmp_path / "r1.json").read_bytes())["state"] == "saved"


def test_a_folder_that_cannot_be_read_is_an_error_and_no_empty_list(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    store = RecordingStore(folder)
    assert store.newest("", limit=9) == []  # nothing was recorded yet
    folder.symlink_to(folder)
    for look in (
        lambda: store.newest("", limit=9),
        lambda: store.newest("acme", limit=9),
        lambda: store.find("r1", ""),
        lambda: store.expire(0.0),
        store.settle,
    ):
        with pytest.raises(OSError, match="symbolic links"):
            look()


def test_one_recording_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    for recording_id in ("good", "bad"):
        file = RecordingFile(plan(tmp_path, recording_id=recording_id))
        frames(file, 3)
        file.finish("stopped")
    store = RecordingStore(tmp_path)
    (tmp_path / "bad.live").unlink()
    (tmp_path / "bad.live").mkdir()
    assert [info.recording_id for info in store.newest("", limit=9)] == ["good"]
    with pytest.raises(IsADirectoryError):
        store.find("bad", "")


def test_a_file_that_the_disk_has_lost_is_reported_as_failed(tmp_path: Path) -> None:
    """Even closing it fails then, and without a report the recording would go on for ever."""
    file = RecordingFile(plan(tmp_path))
    frames(file, 10)
    part = str(tmp_path / "r1.wav.part")
    (number,) = [int(each.name) for each in Path("/proc/self/fd").iterdir() if os.path.realpath(each) == part]
    os.close(number)
    info = file.finish("stopped")
    assert (info.state, info.reason) == ("failed", "storage_error")
