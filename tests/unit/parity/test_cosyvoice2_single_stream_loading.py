"""The plain engine before it speaks: what is loaded, what is told, what is refused."""

from pathlib import Path
from typing import Final

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from cc_tts.engines.cosyvoice2.model.checkpoint import ModelError  # noqa: E402
from cc_tts.engines.cosyvoice2.voice.speakers import Speaker  # noqa: E402
from cc_tts.engines.engine_core import StreamRequest  # noqa: E402
from cc_tts.voices.embedding_cache import EnrolledVoice  # noqa: E402
from cc_tts.voices.library import VoiceLibrary, VoiceRecord  # noqa: E402
from lab.cosyvoice2.tiny_model import make_tiny_model  # noqa: E402
from tests.parity.single_stream import SingleStreamEngine  # noqa: E402
from tests.support.tiny_speakers import tiny_speaker  # noqa: E402
from tests.support.torch_threads import one_thread  # noqa: E402

pytestmark = pytest.mark.unit

VOICE: Final = "anna"

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    torch.save({"中文女": {"embedding": torch.ones(1, 192)}}, directory / "spk2info.pt")
    return directory


def speaker() -> Speaker:
    return tiny_speaker("cross_lingual", num_prompt=25, id=VOICE)


class Ticking:
    """A clock that goes on by 250 ms whenever it is asked."""

    def __init__(self) -> None:
        self._now_ns = 0

    def now_ns(self) -> int:
        self._now_ns += 250_000_000
        return self._now_ns

    def wall_s(self) -> float:
        return 0.0


def test_loading_tells_what_it_does_and_knows_the_voices(directory: Path) -> None:
    told: list[str] = []
    engine = SingleStreamEngine(
        directory,
        voices=lambda: {VOICE: speaker()},
        num_threads=1,
        clock=Ticking(),
    )
    assert not engine.voices
    engine.load(told.append)
    assert [line.split()[0] for line in told] == ["loading", "loading", "warming"]
    assert [(voice.id, voice.kind, voice.language) for voice in engine.voices] == [
        ("中文女", "builtin", "cmn"),
        (VOICE, "zero_shot", "en"),
    ]
    assert engine.load_report().first_audio_ms == 250.0
    engine.open(StreamRequest(stream_id=0, voice=VOICE))
    assert engine.load_report().first_audio_ms == 500.0
    assert engine.load_report().utilisation > 0
    engine.close()
    assert not engine.voices


def test_voices_of_a_folder_that_are_broken_are_left_out(directory: Path, tmp_path: Path) -> None:
    library = VoiceLibrary(tmp_path)
    anna = speaker()
    library.features.store(
        EnrolledVoice("a" * 64, "", "f", 1.0, (), anna.flow_tokens, anna.flow_tokens, anna.flow_mel, anna.embedding)
    )
    for voice_id, key in ((VOICE, "a" * 64), ("gone", "b" * 64)):
        library.store(VoiceRecord(id=voice_id, language="en", mode="cross_lingual", key=key))
    (tmp_path / "odd.voice.json").write_text("{")
    told: list[str] = []
    engine = SingleStreamEngine(directory, voices=tmp_path)
    engine.load(told.append)
    assert [voice.id for voice in engine.voices] == ["中文女", VOICE]
    left_out = [line for line in told if "left out" in line]
    assert len(left_out) == 2
    assert "odd.voice.json" in left_out[0]
    assert "'gone'" in left_out[1]


def test_a_voice_of_another_model_is_refused_at_the_start(directory: Path) -> None:
    foreign = Speaker(
        id="far",
        language="en",
        mode="zero_shot",
        embedding=np.ones(192, np.float32),
        llm_tokens=np.array([6000], np.int32),
    )
    engine = SingleStreamEngine(directory, voices=lambda: {"far": foreign})
    with pytest.raises(ModelError, match="'far'"):
        engine.load(lambda _: None)


def test_no_model_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such directory"):
        SingleStreamEngine(tmp_path / "none").load(lambda _: None)
