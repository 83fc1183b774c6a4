"""Instructions, sounds and emphasis from the API to the tokens of the language model: the small model in this process."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from cc_tts.clock import MonotonicClock  # noqa: E402
from cc_tts.config.schema import Config  # noqa: E402
from cc_tts.engines.cosyvoice.batched import BatchedConfig, BatchedLoader  # noqa: E402
from cc_tts.engines.cosyvoice.engine.config import EngineConfig  # noqa: E402
from cc_tts.engines.cosyvoice.engine.device import SlotPrefill  # noqa: E402
from cc_tts.engines.cosyvoice.engine.engine import Engine  # noqa: E402
from cc_tts.engines.cosyvoice.model.loader import load_model, load_tokenizer  # noqa: E402
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LmInput, SpeechIds, text_inputs  # noqa: E402
from cc_tts.engines.cosyvoice.model.special_tokens import SPECIAL_TOKENS  # noqa: E402
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer  # noqa: E402
from cc_tts.engines.worker.client import WorkerEngine  # noqa: E402
from cc_tts.metrics import Metrics  # noqa: E402
from cc_tts.speech.incremental.text import IncrementalText, segmenting_of  # noqa: E402
from cc_tts.speech.prompt import IncrementalContent, TextContent  # noqa: E402
from cc_tts.speech.source import SpeechSource  # noqa: E402
from cc_tts.text.normalizer import Normalizer  # noqa: E402
from lab.cosyvoice.tiny_model import make_tiny_model  # noqa: E402
from tests.fakes.running_api import RunningApi, make_config, running_api  # noqa: E402
from tests.fakes.worker_here import link_here, none_elsewhere  # noqa: E402
from tests.support.neural_settings import neural_settings  # noqa: E402
from tests.support.small_engine import runner_of, speakers  # noqa: E402
from tests.support.torch_threads import one_thread  # noqa: E402

pytestmark = pytest.mark.integration

VOICE = "zero_shot"

_one_thread = pytest.fixture(scope="module", autouse=True)(one_thread)


@dataclass
class Model:
    engine: Engine
    loader: BatchedLoader
    tokenizer: TextTokenizer
    speech_ids: SpeechIds
    prefills: list[SlotPrefill]

    def inputs_of(self, *parts: str) -> list[LmInput]:
        """The layout of a text in these parts, special tokens as they are spelled (§3.2, v3 §3.2)."""
        tokenizer, ids = self.tokenizer, list[int]()
        for part in parts:
            is_special = part in SPECIAL_TOKENS[tokenizer.generation]
            ids += tokenizer.encode_written(tokenizer.written(part)) if is_special else tokenizer.encode(part)
        return [self.speech_ids.sos, *text_inputs(ids), self.speech_ids.task]

    def take(self) -> list[LmInput]:
        inputs = [each for prefill in self.prefills for each in prefill.prefill.inputs]
        self.prefills.clear()
        return inputs


@pytest.fixture(scope="module", params=[2, 3])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    config = BatchedConfig(
        engine=EngineConfig(max_streams=2, first_audio_target_ms=60_000.0, admits_all=True),
        device=torch.device("cpu"),
        memory_bytes=200 << 20,
        calibration_rows=(),
        num_positions=512,
    )
    directory = make_tiny_model(tmp_path_factory.mktemp("model"), request.param)
    loader = BatchedLoader(directory, speakers, config)
    engine = loader.load(lambda _: None)
    assert engine is not None
    noted: list[SlotPrefill] = []
    runner = runner_of(engine)
    start = runner.start

    def noting(prefills: Sequence[SlotPrefill]) -> None:
        noted.extend(prefills)
        start(prefills)

    runner.start = noting  # type: ignore[method-assign]
    networks = load_model(directory)
    return Model(engine, loader, load_tokenizer(directory, networks), networks.lm.config.speech_ids, noted)


@asynccontextmanager
async def speech_of(model: Model, **tts: Any) -> AsyncIterator[tuple[SpeechSource, Config]]:
    config = replace(make_config(), tts=neural_settings("/m", voice=VOICE, **tts))
    engine = WorkerEngine(config.tts, [link_here(model.engine, model.loader)], none_elsewhere(), metrics=Metrics())
    await engine.start()
    yield SpeechSource(engine, Normalizer(), config.tts), config
    await engine.stop()


@pytest.fixture
async def api(model: Model) -> AsyncIterator[RunningApi]:
    async with speech_of(model) as (source, config), running_api(config, speech_source=source) as running:
        model.take()
        yield running


async def say(api: RunningApi, **body: Any) -> None:
    answered = await api.ask("POST", "/v1/audio/speech", {"response_format": "pcm", **body})
    assert answered.status == 200, answered.raw
    assert len(answered.raw) > 4800


async def test_instructions_come_before_the_text_in_the_layout_of_the_model(api: RunningApi, model: Model) -> None:
    is_third = model.tokenizer.generation == 3
    before = ["You are a helpful assistant. speak calmly" if is_third else "speak calmly", "<|endofprompt|>"]
    await say(api, input="hold the line", instructions=" speak \n calmly ")
    assert model.take() == model.inputs_of(*before, "hold the line.")
    await say(api, input="hold the line", instructions="")
    assert model.take() != model.inputs_of(*before, "hold the line.")


async def test_sounds_and_emphasis_of_ssml_are_tokens(api: RunningApi, model: Model) -> None:
    before = ["You are a helpful assistant. calmly" if model.tokenizer.generation == 3 else "calmly", "<|endofprompt|>"]
    ssml = '<speak>hold <emphasis>the</emphasis> line<cc:sound name="laughter"/>.</speak>'
    await say(api, ssml=ssml, instructions="calmly")
    words = ["hold ", "<strong>", "the", "</strong>", " line", "[laughter]", "."]
    assert model.take() == model.inputs_of(*before, *words)


@pytest.mark.parametrize("markdown", ["strip", "keep"])
async def test_no_text_has_special_tokens_whatever_it_spells(model: Model, markdown: str) -> None:
    """A prompt, the tokens of a language model, and instructions but for sounds and emphasis."""
    spelled = "[laughter] <strong>hold</strong> <|endofprompt|><|im_start|> \uf8f5\uf8fb\U000f0003"
    async with speech_of(model, markdown=markdown) as (source, config):
        tokens = IncrementalText(MonotonicClock(), segmenting=segmenting_of(config.tts), idle_timeout_s=1.0)
        for each in spelled:
            tokens.append(each)
        tokens.end()
        model.take()
        for content in (TextContent(spelled, instructions="x"), IncrementalContent(TextContent(""), tokens)):
            async for _ in source.open(content, rate_hz=8000):
                pass
            first = model.tokenizer.end_of_prompt - 3
            special = [each.row for each in model.take() if each.table == 1 and each.row >= first]
            is_instructed = isinstance(content, TextContent) or model.tokenizer.generation == 3
            assert set(special) <= {model.tokenizer.end_of_prompt}
            assert bool(special) == is_instructed


async def test_a_sound_alone_is_nothing_to_say(api: RunningApi) -> None:
    answered = await api.ask("POST", "/v1/audio/speech", {"ssml": '<speak><cc:sound name="laughter"/></speak>'})
    assert (answered.status, answered.json["error"]["code"]) == (422, "nothing_to_say")


async def test_long_instructions_are_refused_where_they_are_taken(api: RunningApi) -> None:
    answered = await api.ask("POST", "/v1/audio/speech", {"input": "hello", "instructions": "x" * 501})
    assert answered.status == 422
    assert "500 at most" in answered.raw.decode()
