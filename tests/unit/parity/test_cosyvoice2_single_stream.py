"""The plain engine: turns, the end of streams, and that none of them touches another."""

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from cc_tts.engines.cosyvoice2.voice.speakers import Speaker  # noqa: E402
from cc_tts.engines.engine_core import EngineCore, SpeechOut, StreamDone, StreamRequest  # noqa: E402
from cc_tts.errors import EngineFailed, EngineOverloaded, UnknownVoice, Unprocessable  # noqa: E402
from lab.cosyvoice2.tiny_model import make_tiny_model  # noqa: E402
from tests.parity.audio_track import AudioTrack, NotFinite  # noqa: E402
from tests.parity.single_stream import MAX_AHEAD_MS, SingleStreamEngine  # noqa: E402
from tests.parity.synthesizer import Synthesizer  # noqa: E402
from tests.support.stepped_streams import MAX_STEPS, endings, order, pcm_of, run  # noqa: E402
from tests.support.tiny_speakers import tiny_speaker  # noqa: E402
from tests.support.torch_threads import one_thread  # noqa: E402

pytestmark = pytest.mark.unit

VOICE: Final = "anna"
PIECE_MS: Final = 1000

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    torch.save({"中文女": {"embedding": torch.ones(1, 192)}}, directory / "spk2info.pt")
    return directory


def speaker() -> Speaker:
    return tiny_speaker("cross_lingual", num_prompt=25, id=VOICE)


def make_engine(directory: Path, **options: Any) -> SingleStreamEngine:
    engine = SingleStreamEngine(directory, voices=lambda: {VOICE: speaker()}, **options)
    engine.load(lambda _: None)
    return engine


@pytest.fixture(scope="module")
def loaded(directory: Path) -> SingleStreamEngine:
    return make_engine(directory, max_streams=3)


@pytest.fixture
def engine(loaded: SingleStreamEngine) -> Iterator[SingleStreamEngine]:
    """One engine for all, empty at the start."""
    yield loaded
    for stream_id in range(10):
        loaded.cancel(stream_id)


def open_stream(engine: EngineCore, stream_id: int, *texts: str, end: bool = True, speed: float = 1.0) -> None:
    engine.open(StreamRequest(stream_id=stream_id, voice=VOICE, speed=speed))
    for index, text in enumerate(texts):
        engine.push(stream_id, text, index)
    if end:
        engine.end(stream_id)


class Scripted:
    """Stands in for ``Synthesizer.speak``: a second of audio for each letter of the text; ``!`` breaks it."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.speeds: list[float] = []
        self.seeds: dict[str, set[int]] = {}

    def __call__(self, _speaker: Speaker, text: str, *, seed: int, speed: float = 1.0) -> Iterator[Any]:
        self.seeds.setdefault(text, set()).add(seed)
        self.speeds.append(speed)
        return self._pieces(text)

    def _pieces(self, text: str) -> Iterator[Any]:
        try:
            for letter in text:
                if letter == "!":
                    raise RuntimeError("out of memory")
                if letter == "?":
                    raise NotFinite("flow")
                yield torch.full((24 * PIECE_MS,), ord(letter) / 256)
        finally:
            self.closed.append(text)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    script = Scripted()
    monkeypatch.setattr(Synthesizer, "speak", script)
    return script


# --- with the networks


def test_text_becomes_audio_and_an_end(engine: SingleStreamEngine) -> None:
    open_stream(engine, 0, "hello.", "you.")
    outs = run(engine)
    assert outs[-1] == StreamDone(0)
    speech = [out for out in outs if isinstance(out, SpeechOut)]
    assert sorted({out.text_chunk_index for out in speech}) == [0, 1]
    assert [out.text_chunk_index for out in speech] == sorted(out.text_chunk_index for out in speech)
    assert len(pcm_of(outs, 0)) % (2 * 960) == 0
    assert engine.load_report().num_streams == 0


def test_company_changes_nothing(engine: SingleStreamEngine) -> None:
    open_stream(engine, 0, "hello.")
    alone = pcm_of(run(engine), 0)
    open_stream(engine, 1, "hello.")
    open_stream(engine, 2, "you.")
    outs = run(engine)
    assert pcm_of(outs, 1) == alone
    assert set(endings(outs)) == {1, 2}


def test_interleaved_chunks_are_one_sequence(directory: Path) -> None:
    engine = make_engine(directory, interleaved=True)
    open_stream(engine, 0, "hello and welcome to the service line.", end=False)
    outs = run(engine)
    assert outs
    assert not endings(outs)
    assert not engine.has_work
    engine.push(0, "thank you.", 1)
    engine.end(0)
    outs += run(engine)
    assert outs[-1] == StreamDone(0)
    speech = [out for out in outs if isinstance(out, SpeechOut)]
    assert speech[0].text_chunk_index == 0
    assert speech[-1].text_chunk_index == 1
    assert len(pcm_of(outs, 0)) % (2 * 960) == 0

    synthesizer = engine._synthesizer
    assert synthesizer is not None
    whole = synthesizer.speak_streamed(
        speaker(), ["hello and welcome to the service line.", " thank you."], seed=engine._seed_of(speaker(), "")
    )
    assert 2 * sum(len(piece) for piece in whole) == len(pcm_of(outs, 0))


def test_an_interleaved_stream_without_text_just_ends(directory: Path) -> None:
    engine = make_engine(directory, interleaved=True)
    open_stream(engine, 0)
    assert run(engine) == [StreamDone(0)]


def test_text_that_is_too_long_ends_its_stream_only(engine: SingleStreamEngine) -> None:
    open_stream(engine, 0, "1" * 1000)
    open_stream(engine, 1, "you.")
    done = endings(outs := run(engine))
    assert isinstance(done[0].error, Unprocessable)
    assert done[1].error is None
    assert pcm_of(outs, 1)


# --- turns


@pytest.mark.usefixtures("scripted")
def test_streams_take_turns_and_a_new_one_goes_first(engine: SingleStreamEngine) -> None:
    open_stream(engine, 0, "aaa")
    open_stream(engine, 1, "bb")
    outs = [*engine.step(), *engine.step(), *engine.step()]
    open_stream(engine, 2, "c")
    outs += run(engine)
    assert order(outs) == "0 1 0 2 1 0 2. 1. 0."


@pytest.mark.usefixtures("scripted")
def test_a_stream_far_ahead_waits_for_its_listener(engine: SingleStreamEngine) -> None:
    open_stream(engine, 0, "a" * 12, end=False)
    num_pieces = 0
    while engine.has_work:
        num_pieces += len(engine.step())
        assert num_pieces < MAX_STEPS
    assert num_pieces == MAX_AHEAD_MS // PIECE_MS + 1
    assert engine.step() == ()
    engine.taken(0, 999.0, 0.0)
    assert not engine.has_work
    engine.taken(0, 1000.0, 0.0)
    assert engine.has_work
    assert len(engine.step()) == 1
    engine.taken(0, 500.0, 0.0)  # an older report than the last
    assert not engine.has_work


@pytest.mark.usefixtures("scripted")
def test_whoever_waits_does_not_hold_up_others(engine: SingleStreamEngine) -> None:
    open_stream(engine, 0, "a" * 12)
    for _ in range(5):
        engine.step()
    open_stream(engine, 1, "bb")
    outs = [*engine.step(), *engine.step(), *engine.step()]
    assert order(outs) == "1 1 1."


@pytest.mark.usefixtures("scripted")
def test_text_may_come_late(engine: SingleStreamEngine) -> None:
    open_stream(engine, 0, end=False)
    assert not engine.has_work
    engine.push(0, "a", 0)
    assert order(run(engine)) == "0"
    engine.push(0, "", 1)
    engine.push(0, "b", 2)
    outs = run(engine)
    assert [out.text_chunk_index for out in outs if isinstance(out, SpeechOut)] == [2]
    engine.end(0)
    engine.push(0, "c", 3)  # after the end
    assert run(engine) == [StreamDone(0)]


def test_the_same_words_are_said_alike(engine: SingleStreamEngine, scripted: Scripted) -> None:
    open_stream(engine, 0, "a", "b", speed=1.5)
    run(engine)
    open_stream(engine, 1, "a", speed=1.5)
    run(engine)
    assert len(scripted.seeds["a"]) == 1
    assert scripted.seeds["a"] != scripted.seeds["b"]
    assert scripted.speeds == [1.5] * 3


# --- ends


@pytest.mark.parametrize("num_steps", [0, 1, 2])
def test_cancel_frees_at_once(engine: SingleStreamEngine, scripted: Scripted, num_steps: int) -> None:
    open_stream(engine, 0, "aaaa", "bbbb")
    for _ in range(num_steps):
        engine.step()
    engine.cancel(0)
    assert scripted.closed == (["aaaa"] if num_steps else [])
    assert not engine.has_work
    assert engine.step() == ()
    engine.cancel(0)


@pytest.mark.parametrize("is_broken", [True, False])
def test_caches_go_with_their_stream(
    engine: SingleStreamEngine, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    tracks: list[weakref.ref[AudioTrack]] = []
    track = Synthesizer.track

    def watched(synthesizer: Synthesizer, who: Speaker, *, seed: int) -> AudioTrack:
        made = track(synthesizer, who, seed=seed)
        tracks.append(weakref.ref(made))
        return made

    monkeypatch.setattr(Synthesizer, "track", watched)
    open_stream(engine, 0, "hello and welcome to the service line.")
    assert len(engine.step()) == 1
    assert tracks[0]() is not None
    if is_broken:
        monkeypatch.setattr(AudioTrack, "add", lambda _track, _token: 1 // 0)
        (done,) = engine.step()
        assert isinstance(done, StreamDone)
        assert isinstance(done.error, EngineFailed)
    else:
        engine.cancel(0)
    assert [made() for made in tracks] == [None]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("a!", EngineFailed, r"RuntimeError at test_.*\.py:\d+: out of memory"),
        ("!", EngineFailed, "out of memory"),
        ("a?", NotFinite, "the flow gave"),
    ],
)
@pytest.mark.usefixtures("scripted")
def test_an_error_ends_its_stream_only(
    engine: SingleStreamEngine, text: str, kind: type[Exception], message: str
) -> None:
    num_before = engine.load_report().num_not_finite
    open_stream(engine, 0, text, "never", end=False)
    open_stream(engine, 1, "bbb")
    outs = run(engine)
    done = endings(outs)
    assert isinstance(done[0].error, kind)
    assert done[0].error.__traceback__ is None
    with pytest.raises(kind, match=message):
        raise done[0].error
    assert done[1].error is None
    assert len(pcm_of(outs, 1)) == 3 * 48 * PIECE_MS
    assert engine.load_report().num_not_finite - num_before == (kind is NotFinite)
    assert engine.load_report().num_streams == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.push(9, "a", 0),
        lambda engine: engine.end(9),
        lambda engine: engine.cancel(9),
        lambda engine: engine.taken(9, 1.0, 1.0),
    ],
)
def test_streams_that_are_gone_are_ignored(
    engine: SingleStreamEngine, call: Callable[[SingleStreamEngine], None]
) -> None:
    call(engine)
    assert not engine.has_work


# --- admission


@pytest.mark.usefixtures("scripted")
def test_more_streams_than_may_be_are_refused(engine: SingleStreamEngine) -> None:
    for stream_id in range(3):
        assert engine.load_report().refusal == ""
        open_stream(engine, stream_id, "a")
    report = engine.load_report()
    assert (report.num_streams, report.slots_used, report.slots_total) == (3, 3, 3)
    with pytest.raises(EngineOverloaded, match="3 streams") as caught:
        open_stream(engine, 3, "a")
    assert caught.value.retry_after_s == report.retry_after_s
    assert caught.value.detail == report.refusal
    run(engine)
    open_stream(engine, 3, "a")


def test_unknown_voices_are_refused(engine: SingleStreamEngine) -> None:
    with pytest.raises(UnknownVoice, match=r"did you mean anna\?"):
        engine.open(StreamRequest(stream_id=0, voice="ana"))


@pytest.mark.parametrize("speed", [0.1, 5.0, float("nan")])
def test_odd_speeds_are_refused(engine: SingleStreamEngine, speed: float) -> None:
    with pytest.raises(Unprocessable, match="speed"):
        open_stream(engine, 0, speed=speed)
    assert engine.load_report().num_streams == 0


def test_a_stream_is_opened_once(engine: SingleStreamEngine) -> None:
    open_stream(engine, 0, end=False)
    with pytest.raises(ValueError, match="open already"):
        open_stream(engine, 0)


def test_it_is_a_stepped_engine(engine: SingleStreamEngine) -> None:
    stepped: EngineCore = engine
    assert not stepped.has_work
