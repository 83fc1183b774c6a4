"""CosyVoice2 and CosyVoice3 in one engine: the real worker processes with the small models."""

from typing import Final

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from cc_tts import cli  # noqa: E402
from cc_tts.config import load as configuration  # noqa: E402
from cc_tts.engines.factory import make_engine  # noqa: E402
from lab.cosyvoice.tiny_model import make_tiny_model  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

VOICES: Final = {"v2": "anna", "v3": "bert"}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides of the configuration: two models, each with a voice in its table of speakers."""
    found = ["tts.engine=cosyvoice2", "tts.devices=['cpu']", "tts.num_threads=1"]
    for generation, (name, voice) in zip((2, 3), VOICES.items(), strict=True):
        directory = make_tiny_model(tmp_path_factory.mktemp(name), 2 if generation == 2 else 3)
        torch.save({voice: {"embedding": torch.ones(1, 192)}}, directory / "spk2info.pt")
        found += [f"tts.models.{name}.model_dir={directory}", f"tts.models.{name}.state_memory_bytes={300 << 20}"]
    return found


async def test_each_voice_is_spoken_by_its_model(settings: list[str]) -> None:
    engine = make_engine(configuration.load(overrides=settings), purpose="say")
    await engine.start()
    try:
        assert [(voice.model, voice.id) for voice in engine.voices()] == list(VOICES.items())
        heard = []
        for voice in VOICES.values():
            stream = engine.open(voice)
            stream.push("hello", text_chunk_index=0)
            stream.end()
            heard.append(b"".join([chunk.data async for chunk in stream]))
        assert all(any(each) for each in heard)
        assert heard[0] != heard[1]
    finally:
        await engine.stop()


def test_the_command_line_says_which_model_a_voice_is_of(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [part for each in settings for part in ("--set", each)]
    assert cli.main(["voices", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines()[0].split()[-2:] == ["model", "description"]
    rows = [line.split() for line in printed.out.splitlines()]
    assert [(row[0], row[-1]) for row in rows] == [("anna", "v2"), ("bert", "v3")]
