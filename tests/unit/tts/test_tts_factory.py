import pytest

from cc_tts.errors import ConfigError
from cc_tts.tts.espeak import EspeakEngine
from cc_tts.tts.factory import make_engine

pytestmark = pytest.mark.unit


def test_espeak_is_made_and_not_started() -> None:
    engine = make_engine("espeak", max_streams=3)
    assert isinstance(engine, EspeakEngine)
    assert engine.name == "espeak"
    assert engine.not_ready_because == "not started"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("espeek", {}, "did you mean 'espeak'"),
        ("cosyvoice", {}, "did you mean 'cosyvoice2'"),
        ("", {}, "no engine is called ''"),
        ("cosyvoice2", {"device": "cuda:0"}, "not part of this version yet"),
        ("espeak", {"volume": 3}, "engine 'espeak': .*volume"),
    ],
)
def test_what_cannot_be_made(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_engine(name, **options)
