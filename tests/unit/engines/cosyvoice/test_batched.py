"""The batched engine with the small model: what it says is what the plain engine says, and nothing is left behind."""

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.support.captured_logs import capture_logs

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice import batched
from cc_tts.engines.cosyvoice.batched import BatchedConfig, BatchedLoader, paced
from cc_tts.engines.cosyvoice.engine.capacity import MAX_GUARD_MS, Capacity, StageCost, StageCosts
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.cosyvoice.engine.schedule import exact_hop
from cc_tts.engines.cosyvoice.model.checkpoint import ModelError
from cc_tts.engines.cosyvoice.model.loader import SpeechModel, load_model, load_tokenizer
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow, FlowReference, fixed_noise
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.model.networks.vocoder.source import Source
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.runaway import LENGTH_FACTOR, LENGTH_SPARE, TYPICAL_PACE
from cc_tts.engines.cosyvoice.runners import runner as model_runner
from cc_tts.engines.cosyvoice.runners.flow import FlowRunner, FlowVoice
from cc_tts.engines.cosyvoice.runners.lm import LmRunner
from cc_tts.engines.cosyvoice.runners.runner import ModelRunner
from cc_tts.engines.cosyvoice.voice.speakers import Speaker
from cc_tts.engines.cosyvoice.voice.spoken_text import as_sentence
from cc_tts.engines.cosyvoice.voice.text_front import MAX_SEED
from cc_tts.engines.engine_core import DeviceLost, StreamDone, StreamRequest
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import ConfigError, EngineFailed, UnknownVoice
from lab.cosyvoice.schedule import HopSchedule, calls_for
from lab.cosyvoice.tiny_model import NUM_CODES, make_tiny_model
from lab.cosyvoice.token2wav import stream_wav
from lab.cosyvoice.whole_vocoder import vocode
from tests.parity.generation import speak
from tests.parity.samplers import SeededRas
from tests.support.small_engine import let_hops_double, open_streams, runner_of
from tests.support.stepped_streams import endings, pcm_of, run
from tests.support.tiny_speakers import tiny_speaker
from tests.support.torch_threads import one_thread

pytestmark = pytest.mark.unit

MAX_STREAMS: Final = 9
MEMORY_BYTES: Final = 400 << 20
TEXT: Final = "welcome to the service line"
WORDS: Final = ("hello", "and", "welcome", "to", "the", "service", "line", "please", "hold")


@pytest.fixture(scope="module", autouse=True)
def _same_every_time() -> Iterator[None]:
    """One thread; hops that double whatever the listener holds, because crossfades lie where hops end."""
    with pytest.MonkeyPatch.context() as patch:
        let_hops_double(patch)
        yield from one_thread()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


def speakers() -> dict[str, Speaker]:
    modes = (tiny_speaker("zero_shot"), tiny_speaker("cross_lingual", num_prompt=30), tiny_speaker("instruct"))
    return {each.id: each for each in (*modes, tiny_speaker("builtin"))}


def make_loader(
    directory: Path, make_speakers: Callable[[], dict[str, Speaker]] = speakers, **options: Any
) -> BatchedLoader:
    engine = EngineConfig(max_streams=MAX_STREAMS, first_audio_target_ms=60_000.0, admits_all=True)
    config: dict[str, Any] = {
        "engine": engine,
        "device": torch.device("cpu"),
        "memory_bytes": MEMORY_BYTES,
        "calibration_rows": (),
        "num_positions": 512,
        **options,
    }
    return BatchedLoader(directory, make_speakers, BatchedConfig(**config))


@pytest.fixture(scope="module")
def loader(directory: Path) -> BatchedLoader:
    return make_loader(directory)


@pytest.fixture(scope="module")
def loaded(loader: BatchedLoader) -> Engine:
    engine = loader.load(lambda _: None)
    assert engine is not None
    return engine


@pytest.fixture
def engine(loaded: Engine) -> Iterator[Engine]:
    """One engine for all, empty before and after."""
    yield loaded
    for stream_id in range(20):
        loaded.cancel(stream_id)
    check_empty(loaded)


def check_empty(engine: Engine) -> None:
    runner = runner_of(engine)
    assert not runner.decode({}, 0), "slots of the language model are in use"
    assert runner.num_free_pages == runner.num_pages
    assert not engine.has_work
    load = engine.load_report()
    assert (load.num_streams, load.slots_used) == (0, 0)


def open_stream(engine: Any, stream_id: int, voice: str, *texts: str, speed: float = 1.0) -> None:
    engine.open(StreamRequest(stream_id=stream_id, voice=voice, speed=speed))
    for index, text in enumerate(texts):
        engine.push(stream_id, text, index)
    engine.end(stream_id)


def some_text(rng: random.Random) -> str:
    return rng.choice(WORDS)


def samples(pcm: bytes) -> Any:
    return np.frombuffer(pcm, dtype="<i2").astype(np.int32)


def reference_pcm(model: SpeechModel, tokenizer: TextTokenizer, speaker: Speaker, texts: list[str]) -> bytes:
    """What the reference's order of work says, one text after the other; the seed follows from voice and text."""
    prompt = FlowReference(
        torch.tensor(speaker.flow_tokens, dtype=torch.int64)[None],
        torch.tensor(speaker.flow_mel)[None],
        torch.tensor(speaker.embedding)[None],
    )
    num_prompt = len(speaker.flow_tokens)
    pcm = b""
    for text in texts:
        key = f"0\0{speaker.id}\0{text}".encode()
        seed = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") & MAX_SEED
        with torch.inference_mode():
            request = speaker.lm_request(tokenizer, tokenizer.encode(as_sentence(text)))
            tokens = list(speak(model.lm, request, SeededRas(seed)))
            calls = calls_for(HopSchedule(num_prompt, hop=exact_hop(num_prompt)), len(tokens))
            vocoder = partial(vocode, model.vocoder)
            wav = stream_wav(model.flow, vocoder, prompt, torch.tensor([tokens]), calls, noise=fixed_noise())
            audio = torch.cat(list(wav), dim=1)[0].clamp(-1.0, 1.0)
        pcm += (audio * 32767).round().numpy().astype("<i2").tobytes()
    return pcm


def leave_out_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Source.forward
    monkeypatch.setattr(Source, "forward", lambda source, f0, noise: forward(source, f0, None))


def test_eight_at_a_time_say_what_each_says_in_the_reference(
    directory: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise in the source, whose draws are other numbers in each of them, and without the fades of this one."""
    monkeypatch.setattr(model_runner, "soften", lambda pcm, **_: pcm)
    leave_out_noise(monkeypatch)
    rng = random.Random(8)
    voices = ["zero_shot", "cross_lingual", "instruct", "builtin"] * 2
    said = {number: (voice, [some_text(rng) for _ in range(1 + number % 2)]) for number, voice in enumerate(voices)}
    for number, (voice, texts) in said.items():
        open_stream(engine, number, voice, *texts)
    outs = run(engine)
    assert endings(outs) == {number: StreamDone(number) for number in said}

    model = load_model(directory)
    tokenizer = load_tokenizer(directory, model)
    for number, (voice, texts) in said.items():
        ours, theirs = samples(pcm_of(outs, number)), samples(reference_pcm(model, tokenizer, speakers()[voice], texts))
        assert len(ours) == len(theirs) > 0
        assert np.abs(ours - theirs).max() <= 2
        indices = [out.text_chunk_index for out in outs if isinstance(out, SpeechChunk) and out.stream_id == number]
        assert indices == sorted(indices)


def test_with_fewer_steps_it_says_what_the_reference_says_with_as_many(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_runner, "soften", lambda pcm, **_: pcm)
    engine, speaker = make_loader(directory, flow_steps=5).load(lambda _: None), speakers()["cross_lingual"]
    assert engine is not None
    leave_out_noise(monkeypatch)
    open_stream(engine, 0, "cross_lingual", "hello")
    ours = samples(pcm_of(run(engine), 0))
    said = {}
    for num_steps in (5, 10):
        model = load_model(directory, flow_steps=num_steps)
        tokenizer = load_tokenizer(directory, model)
        said[num_steps] = samples(reference_pcm(model, tokenizer, speaker, ["hello"]))
    assert np.abs(ours - said[5]).max() <= 2
    assert np.abs(ours - said[10]).max() > 50


def test_a_stream_sounds_the_same_in_whatever_company(engine: Engine) -> None:
    open_stream(engine, 0, "instruct", "welcome")
    alone = pcm_of(run(engine), 0)
    for number, voice in enumerate(["builtin", "zero_shot", "instruct"]):
        open_stream(engine, number, voice, "welcome" if number == 2 else "to")
    assert np.abs(samples(pcm_of(run(engine), 2)) - samples(alone)).max() <= 2


def test_a_changed_speed_changes_the_length(engine: Engine) -> None:
    lengths = []
    for number, speed in enumerate([1.0, 2.0, 0.5]):
        open_stream(engine, number, "cross_lingual", "to us", speed=speed)
        outs = run(engine)
        assert endings(outs) == {number: StreamDone(number)}
        lengths.append(len(pcm_of(outs, number)))
    assert abs(lengths[1] - lengths[0] / 2) <= 960
    assert abs(lengths[2] - lengths[0] * 2) <= 960


@contextmanager
def poisoned(slot: int, where: str) -> Iterator[None]:
    """Within it, numbers of a slot that are not finite come into the next call of the language model, or of its flow."""
    decode, run_pages = SpeechLm.decode, Flow.run_pages
    is_due = True

    def decoded(lm: SpeechLm, last: Tensor, lengths: Tensor, cache: Tensor, **rest: Any) -> tuple[Tensor, Tensor]:
        nonlocal is_due
        if is_due:
            cache[:, :, slot, :, :1] = torch.nan
            is_due = False
        return decode(lm, last, lengths, cache, **rest)

    def run(flow: Flow, *given: Any, slots: Tensor, noise: Tensor, **rest: Any) -> Tensor:
        nonlocal is_due
        ours = slots == slot + 1  # place 0 is scratch
        if is_due and ours.any():
            noise, is_due = noise.masked_fill(ours[:, None, None], torch.nan), False
        return run_pages(flow, *given, slots=slots, noise=noise, **rest)

    with pytest.MonkeyPatch.context() as patch:
        if where == "flow":
            patch.setattr(Flow, "run_pages", run)
        else:
            patch.setattr(SpeechLm, "decode", decoded)
        yield
    assert not is_due


@pytest.mark.parametrize("where", ["language model", "flow"])
def test_numbers_that_are_not_finite_end_one_stream_and_reach_nobody_after_it(engine: Engine, where: str) -> None:
    text = "is line line your"
    open_stream(engine, 0, "cross_lingual", text)
    expected = pcm_of(run(engine), 0)
    before = runner_of(engine).num_not_finite
    for number in range(3):
        open_stream(engine, number, "cross_lingual", text)
    outs = list(engine.step())
    while not all(any(out.stream_id == number for out in outs) for number in range(3)):
        outs += engine.step()
    with poisoned(1, where):  # streams have the lowest slots, in their order
        outs += run(engine)
    done = endings(outs)
    assert isinstance(done[1].error, EngineFailed)
    for number in (0, 2):
        assert done[number] == StreamDone(number)
        assert np.abs(samples(pcm_of(outs, number)) - samples(expected)).max() <= 2
    check_empty(engine)
    for number in range(2):  # in the slots and pages of those
        open_stream(engine, number, "cross_lingual", text)
    outs = run(engine)
    for number in range(2):
        assert np.abs(samples(pcm_of(outs, number)) - samples(expected)).max() <= 2
    assert runner_of(engine).num_not_finite == before + 1


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("Tried to allocate 20 GiB"),
        RuntimeError("CUDA error: out of memory\nand much more"),  # of the driver, where a graph does not fit
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ],
    ids=["allocator", "driver", "triton", "cublas", "cudnn"],
)
def test_a_full_device_ends_the_batch_and_the_engine_lives_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    open_stream(engine, 0, "builtin", "please hold")
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise error

        patch.setattr(FlowRunner, "step", full)
        done = endings(run(engine))
    assert isinstance(done[0].error, EngineFailed)
    assert str(done[0].error) == "flow or vocoder: OutOfDeviceMemory"
    check_empty(engine)
    open_stream(engine, 1, "builtin", "please hold")
    assert endings(run(engine)) == {1: StreamDone(1)}


@pytest.mark.parametrize("part", [FlowRunner, LmRunner])
def test_a_voice_that_the_device_has_no_memory_for_waits_and_holds_none(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, part: type
) -> None:
    runner = runner_of(engine)
    runner.forget("zero_shot")
    num_free = runner.num_free_pages

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("Tried to allocate 20 GiB")

    with monkeypatch.context() as patch:
        patch.setattr(part, "add_voice", full)
        assert runner.keep_voices(["zero_shot"]) == ("zero_shot",)
    assert runner.num_free_pages == num_free
    assert runner.keep_voices(["zero_shot"]) == ()


def test_a_lost_device_ends_the_loop(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    open_stream(engine, 0, "builtin", "please hold")
    with monkeypatch.context() as patch:

        def lost(*_: object) -> None:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nand much more")

        patch.setattr(LmRunner, "decode", lost)
        with pytest.raises(DeviceLost, match=r"illegal memory access was encountered$"):
            run(engine)


def test_a_voice_that_it_does_not_have_is_refused(engine: Engine) -> None:
    with pytest.raises(UnknownVoice):
        open_stream(engine, 0, "nobody", "hello")


def test_it_describes_itself(loader: BatchedLoader, loaded: Engine) -> None:
    assert {voice.id for voice in loader.voices} == set(speakers())
    assert "en" in loader.description.languages
    load = loaded.load_report()
    assert load.num_streams == 0
    assert load.room > 0
    assert load.slots_total == MAX_STREAMS + 1


# --- loading


def test_it_tells_what_it_does_and_measures_what_stages_cost(directory: Path) -> None:
    loader = make_loader(directory, lambda: {"builtin": tiny_speaker("builtin")}, calibration_rows=(1, 2, 64))
    told: list[str] = []
    with capture_logs() as lines:
        engine = loader.load(told.append)
    assert [line.split(" (")[0] for line in told if line.startswith("measuring")] == ["measuring 1/2", "measuring 2/2"]
    assert all("not for live calls" in line for line in told)
    assert any("not for live calls" in line["detail"] for line in lines if line["event"] == "cpu_trial")
    (speed,) = (line for line in lines if line["event"] == "cpu_speed")
    assert speed["seconds"] > 0
    assert "CPU" in speed["detail"]
    costs, guessed = loader.costs, StageCosts()
    for stage in ("prefill", "lm_step", "flow", "vocoder"):
        assert getattr(costs, stage).ms(100) != getattr(guessed, stage).ms(100), stage
    assert engine is not None
    check_empty(engine)


@pytest.mark.parametrize(("share", "is_live"), [(0.5, True), (5.0, False)])
def test_voices_of_a_cpu_that_does_not_keep_up_are_for_prompts_made_ahead(
    directory: Path, monkeypatch: pytest.MonkeyPatch, share: float, is_live: bool
) -> None:
    monkeypatch.setattr(Capacity, "utilisation", lambda *_: share)
    loader = make_loader(directory, lambda: {"builtin": tiny_speaker("builtin")}, calibration_rows=(1,))
    loader.load(lambda _: None)
    assert [voice.is_live for voice in loader.voices] == [is_live]


def test_a_card_is_paced_by_what_its_calls_take() -> None:
    def costing(call_ms: float) -> StageCosts:
        costs = StageCosts(vocoder=StageCost(0.0))
        costs.flow = StageCost(call_ms)
        return costs

    fast = paced(EngineConfig(), costing(15.0))
    slow = paced(EngineConfig(), costing(90.0))
    slowest = paced(EngineConfig(), costing(4000.0))
    assert (fast.guard_ms, fast.first_hop_tokens) == (60.0, 12)
    assert slow.guard_ms == pytest.approx(225.0, rel=1e-4)
    assert slow.first_hop_tokens == 12
    assert (slowest.guard_ms, slowest.first_hop_tokens) == (MAX_GUARD_MS, 25)


def test_a_cpu_measures_one_piece(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_calls = []
    speak = ModelRunner.speak

    def counted(runner: ModelRunner, jobs: Any) -> Any:
        num_calls.append(len(jobs))
        return speak(runner, jobs)

    monkeypatch.setattr(ModelRunner, "speak", counted)
    make_loader(directory, lambda: {"builtin": tiny_speaker("builtin")}, calibration_rows=(1,)).load(lambda _: None)
    assert num_calls == [1]


@pytest.mark.parametrize(("calibration_rows", "expected"), [((1,), [0]), ((), [])])
def test_a_cpu_computes_one_prompt_before_it_is_wanted_and_none_for_a_single_text(
    directory: Path, monkeypatch: pytest.MonkeyPatch, calibration_rows: tuple[int, ...], expected: list[int]
) -> None:
    both = {each: tiny_speaker(each) for each in ("builtin", "zero_shot")}
    told: list[str] = []
    computed, add_voice = [], FlowRunner.add_voice

    def noting(flow: FlowRunner, reference: FlowReference) -> FlowVoice:
        assert not any(line.startswith("measuring") for line in told), "too late"
        computed.append(reference.token.shape[1])
        return add_voice(flow, reference)

    monkeypatch.setattr(FlowRunner, "add_voice", noting)
    make_loader(directory, lambda: both, calibration_rows=calibration_rows).load(told.append)
    assert computed == expected, "tokens of their references, of which the first voice has none"


def test_in_8_bits_a_stream_sounds_the_same_in_whatever_company_and_a_fault_stays_its_own(directory: Path) -> None:
    engine = make_loader(directory, int8=True).load(lambda _: None)
    assert engine is not None
    open_stream(engine, 0, "instruct", "welcome")
    alone = pcm_of(run(engine), 0)
    for number, voice in enumerate(["builtin", "zero_shot", "instruct"]):
        open_stream(engine, number, voice, "welcome" if number == 2 else "to")
    outs = list(engine.step())
    with poisoned(0, "language model"):
        outs += run(engine)
    assert isinstance(endings(outs)[0].error, EngineFailed)
    assert np.abs(samples(pcm_of(outs, 2)) - samples(alone)).max() <= 2


def test_a_company_without_pages_is_not_measured(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelRunner, "num_free_pages", 1)
    told: list[str] = []
    make_loader(directory, lambda: {"builtin": tiny_speaker("builtin")}, calibration_rows=(1, 2)).load(told.append)
    assert [line.split(" (")[0] for line in told if line.startswith("measuring")] == ["measuring 1/2"]


def test_too_little_memory_is_told_in_the_words_of_the_configuration(directory: Path) -> None:
    loader = make_loader(directory, memory_bytes=1000)
    with pytest.raises(ConfigError, match=r"state_memory_bytes: 1,000 hold 0 pages"):
        loader.load(lambda _: None)


def test_a_voice_of_another_model_is_refused(directory: Path) -> None:
    alien = tiny_speaker("cross_lingual", flow_tokens=np.full(45, 6000, np.int32))
    loader = make_loader(directory, lambda: {"alien": alien})
    with pytest.raises(ModelError, match="speech tokens that this model does not know"):
        loader.load(lambda _: None)


def test_voices_that_came_or_were_made_anew_speak_and_streams_go_on_with_the_former_one(directory: Path) -> None:
    there = {"builtin": tiny_speaker("builtin"), "zero_shot": tiny_speaker("zero_shot")}
    loader = make_loader(directory, lambda: dict(there))
    engine = loader.load(lambda _: None)
    assert engine is not None
    open_streams(engine, {1: "zero_shot"}, "welcome")
    outs = list(engine.step())
    there["zero_shot"] = tiny_speaker("zero_shot", num_prompt=30)
    there["instruct"] = tiny_speaker("instruct")
    del there["builtin"]
    told: list[str] = []
    loader.refresh(lambda: told.extend(voice.id for voice in loader.voices))
    assert told == ["zero_shot", "instruct"]
    open_streams(engine, {2: "zero_shot", 3: "instruct"}, "welcome")
    outs += run(engine)
    assert endings(outs) == {stream_id: StreamDone(stream_id) for stream_id in (1, 2, 3)}


def test_a_voice_that_is_gone_is_forgotten_when_nobody_speaks_with_it(directory: Path) -> None:
    there = {"builtin": tiny_speaker("builtin"), "zero_shot": tiny_speaker("zero_shot")}
    loader = make_loader(directory, lambda: dict(there))
    engine = loader.load(lambda _: None)
    assert engine is not None
    open_streams(engine, {1: "zero_shot"}, "welcome")
    outs = list(engine.step())
    del there["zero_shot"]
    loader.refresh(lambda: None)
    outs += run(engine)
    assert endings(outs) == {1: StreamDone(1)}
    loader.refresh(lambda: None)
    with pytest.raises(UnknownVoice):
        open_streams(engine, {2: "zero_shot"}, "welcome")
    there["zero_shot"] = tiny_speaker("zero_shot", num_prompt=30)
    loader.refresh(lambda: None)
    open_streams(engine, {3: "zero_shot"}, "welcome")
    assert endings(run(engine)) == {3: StreamDone(3)}


def test_a_voice_that_does_not_fit_is_left_out_and_the_others_stay(directory: Path) -> None:
    there = {"builtin": tiny_speaker("builtin")}
    loader = make_loader(directory, lambda: dict(there))
    loader.load(lambda _: None)
    there["alien"] = tiny_speaker("zero_shot", id="alien", llm_tokens=np.array([10**6], np.int32))
    loader.refresh(lambda: None)
    assert [voice.id for voice in loader.voices] == ["builtin"]


def test_speech_that_does_not_end_is_stopped(directory: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are untrained, so no speech ends by itself. At another speed none of it was heard, so all is given up."""
    monkeypatch.setattr(batched, "PUBLISHED_CODES", NUM_CODES)
    guarded = make_loader(directory).load(lambda _: None)
    assert guarded is not None
    for each in (engine, guarded):
        open_stream(each, 0, "builtin", TEXT)
    open_stream(guarded, 1, "builtin", TEXT, speed=1.5)
    free, outs = pcm_of(run(engine), 0), run(guarded)
    assert endings(outs) == {0: StreamDone(0), 1: StreamDone(1)}
    num_text = len(TextTokenizer.from_directory(directory / "CosyVoice-BlankEN").encode(as_sentence(TEXT)))
    most_ms = 40 * (LENGTH_FACTOR * TYPICAL_PACE * num_text + LENGTH_SPARE)
    assert 0 < len(pcm_of(outs, 0)) / 48 <= most_ms < len(free) / 48
    gave_up = [(out.stream_id, out.gave_up_after) for out in outs if isinstance(out, SpeechChunk) and not out.data]
    assert gave_up == [(0, 1.0), (1, 0.0)]
    assert guarded.load_report().num_runaways["length"] == 3
    check_empty(guarded)
