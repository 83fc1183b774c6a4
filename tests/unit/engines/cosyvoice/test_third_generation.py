"""The engine with a small model of the third generation: what it says is what the networks say by themselves."""

import hashlib
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch

from cc_tts.engines.cosyvoice.batched import BatchedConfig, BatchedLoader
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.cosyvoice.model.loader import SpeechModel, load_model, load_tokenizer
from cc_tts.engines.cosyvoice.model.networks.flow.flow import FlowReference, fixed_noise
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import SpeechIds, Table
from cc_tts.engines.cosyvoice.model.networks.vocoder.causal import CausalVocoder
from cc_tts.engines.cosyvoice.model.tokenizer import DEFAULT_INSTRUCTION, TextTokenizer
from cc_tts.engines.cosyvoice.runners import runner as model_runner
from cc_tts.engines.cosyvoice.runners.causal_vocoder import CausalVocoderRunner, fixed_uniform
from cc_tts.engines.cosyvoice.runners.vocoder import VocoderRow
from cc_tts.engines.cosyvoice.voice.speakers import Mode, Speaker
from cc_tts.engines.cosyvoice.voice.spoken_text import as_sentence
from cc_tts.engines.cosyvoice.voice.text_front import MAX_SEED, TextFront
from cc_tts.engines.engine_core import StepOut, StreamDone, StreamRequest
from cc_tts.voices.inline_ipa import pronounced
from lab.cosyvoice.tiny_model import NUM_CODES, make_tiny_model
from lab.cosyvoice.whole_flow import whole_mel
from lab.cosyvoice.whole_vocoder import causal_whole
from tests.parity.generation import speak
from tests.parity.samplers import SeededRas
from tests.support.small_engine import load_engine
from tests.support.stepped_streams import endings, pcm_of, run
from tests.support.tiny_speakers import tiny_speaker
from tests.support.torch_threads import one_thread

pytestmark = pytest.mark.unit

MODES: Final = ("zero_shot", "cross_lingual", "instruct", "builtin")
UNIFORM: Final = fixed_uniform(48 * 24_000 // 2)

_one_thread = pytest.fixture(scope="module", autouse=True)(one_thread)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("third"), 3)


def speakers() -> dict[str, Speaker]:
    return {mode: tiny_speaker(mode) for mode in MODES}


@pytest.fixture(scope="module")
def engine(directory: Path) -> Engine:
    config = BatchedConfig(
        engine=EngineConfig(max_streams=5, first_audio_target_ms=60_000.0, admits_all=True),
        device=torch.device("cpu"),
        memory_bytes=400 << 20,
        calibration_rows=(),
        num_positions=512,
    )
    made = BatchedLoader(directory, speakers, config).load(lambda _: None)
    assert made is not None
    return made


@pytest.fixture(scope="module")
def networks(directory: Path) -> tuple[SpeechModel, TextTokenizer]:
    model = load_model(directory)
    return model, load_tokenizer(directory, model)


@pytest.fixture
def front(networks: tuple[SpeechModel, TextTokenizer]) -> TextFront:
    model, tokenizer = networks
    return TextFront(tokenizer, speakers(), speech_ids=model.lm.config.speech_ids, num_positions=512)


def whole_pcm(networks: tuple[SpeechModel, TextTokenizer], speaker: Speaker, text: str) -> bytes:
    """What the networks make of a text in one run each; the seed follows from voice and text."""
    model, tokenizer = networks
    seed = int.from_bytes(hashlib.blake2b(f"0\0{speaker.id}\0{text}".encode(), digest_size=8).digest(), "big")
    request = speaker.lm_request(tokenizer, tokenizer.encode(as_sentence(text)))
    prompt = FlowReference(
        torch.tensor(speaker.flow_tokens, dtype=torch.int64)[None],
        torch.tensor(speaker.flow_mel)[None],
        torch.tensor(speaker.embedding)[None],
    )
    with torch.inference_mode():
        tokens = torch.tensor([list(speak(model.lm, request, SeededRas(seed & MAX_SEED)))])
        mel = whole_mel(model.flow, tokens, prompt, streaming=True, finalize=True, noise=fixed_noise())[0]
        audio = causal_whole(cast("CausalVocoder", model.vocoder), mel, UNIFORM, finalize=True).audio
    assert len(audio) == 960 * tokens.shape[1]
    return (audio.clamp(-1.0, 1.0) * 32767).round().numpy().astype("<i2").tobytes()


def test_two_at_a_time_say_what_the_networks_say(
    engine: Engine, networks: tuple[SpeechModel, TextTokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hop by hop and in a batch, it is what one run over the whole gives: nothing is faded."""
    monkeypatch.setattr(model_runner, "soften", lambda pcm, **_: pcm)
    texts: dict[Mode, str] = {"zero_shot": "hello", "instruct": "hold"}
    for number, (mode, text) in enumerate(texts.items()):
        engine.open(StreamRequest(stream_id=number, voice=mode, speed=1.0))
        engine.push(number, text, 0)
        engine.end(number)
    outs = run(engine)
    for number, (mode, text) in enumerate(texts.items()):
        ours = np.frombuffer(pcm_of(outs, number), "<i2").astype(int)
        alone = np.frombuffer(whole_pcm(networks, tiny_speaker(mode), text), "<i2").astype(int)
        assert ours.shape == alone.shape
        assert np.abs(ours - alone).max() <= 40  # a last place of the phase's sum is 7e-4 rad (v3 §5.6)


def test_text_in_parts_is_spoken_as_it_comes(directory: Path) -> None:
    """Audio is there before the text has ended, and no special id is ever a token."""
    engine = load_engine(directory, graphs=False, engine=EngineConfig(max_streams=2, admits_all=True, interleaved=True))
    engine.open(StreamRequest(stream_id=1, voice="instruct"))
    outs: list[StepOut] = []
    for index, part in enumerate(("welcome to the service line please hold", " and we will be with you", " shortly")):
        engine.push(1, part, index)
        while engine.has_work and len(outs) <= index:
            outs += engine.step()
    assert outs
    engine.end(1)
    outs += run(engine)
    assert endings(outs) == {1: StreamDone(1)}
    assert len(pcm_of(outs, 1)) % (2 * 960) == 0


def test_an_instruction_that_has_what_all_begin_with_has_it_once(networks: tuple[SpeechModel, TextTokenizer]) -> None:
    """Clients of the reference's server write it themselves."""
    _, tokenizer = networks
    assert tokenizer.instruction(f"{DEFAULT_INSTRUCTION} 请用广东话表达。") == tokenizer.instruction("请用广东话表达。")
    assert tokenizer.instruction(DEFAULT_INSTRUCTION) == tokenizer.instruction("")


def test_a_text_has_an_instruction_before_it_in_each_mode(networks: tuple[SpeechModel, TextTokenizer]) -> None:
    _, tokenizer = networks
    default = (*tokenizer.encode(DEFAULT_INSTRUCTION), tokenizer.end_of_prompt)
    transcript = tuple(tokenizer.encode(tiny_speaker("zero_shot").prompt_text))
    assert tiny_speaker("zero_shot").lm_request(tokenizer, [1]).prompt_text == (*default, *transcript)
    assert tiny_speaker("cross_lingual").lm_request(tokenizer, [1]).prompt_text == default
    assert tiny_speaker("builtin").lm_request(tokenizer, [1]).prompt_text == default
    instructed = tiny_speaker("instruct")
    words = tokenizer.encode(f"{DEFAULT_INSTRUCTION} {instructed.prompt_text}")
    assert instructed.lm_request(tokenizer, [1]).prompt_text == (*words, tokenizer.end_of_prompt)
    asked = tiny_speaker("zero_shot").lm_request(tokenizer, [1], tokenizer.instruction(instructed.prompt_text))
    assert asked == instructed.lm_request(tokenizer, [1])


def test_ids_and_inputs_follow_from_one_table() -> None:
    ids = SpeechIds(6561, 3)
    assert (ids.num_rows, ids.sos.row, ids.end, ids.task.row, ids.fill) == (6761, 6561, 6562, 6563, 6564)
    assert ids.sos.table is ids.task.table is Table.SPEECH
    second = SpeechIds()
    assert (second.num_rows, second.sos.row, second.end, second.task.row, second.fill) == (6564, 0, 6561, 1, 6563)
    assert second.sos.table is second.task.table is Table.SPECIAL
    assert len(ids.kinds) == 200
    assert ids.kinds.count(ids.kinds[0]) == 198  # all but the end and FILL mean nothing


def test_the_noise_of_the_source_is_everybodys() -> None:
    """The first row that the reference's own draws give (v3 §5.3)."""
    first = [0.92282599, 0.47744751, 0.82705182, 0.28345716, 0.79348159, 0.17343479, 0.85237503, 0.92285460, 0.73101997]
    assert torch.allclose(UNIFORM[0], torch.tensor(first), atol=1e-7)


@pytest.mark.parametrize("sizes", [(5, 1, 7, 50, 0), (12, 40, 30), (4, 9)])
def test_pieces_of_any_size_give_the_whole(networks: tuple[SpeechModel, TextTokenizer], sizes: tuple[int, ...]) -> None:
    """Three streams that begin one call after the other, each in its slot."""
    vocoder = cast("CausalVocoder", networks[0].vocoder)
    runner = CausalVocoderRunner(vocoder, num_slots=3, noise=UNIFORM)
    mels = torch.randn(3, 80, sum(sizes), generator=torch.Generator().manual_seed(7))
    parts: list[Any] = [torch.split(mel, list(sizes), dim=1) for mel in mels]
    heard = dict.fromkeys(range(3), b"")
    for call in range(len(sizes) + 2):
        rows = [
            VocoderRow(slot, parts[slot][place], is_first=place == 0, is_last=place == len(sizes) - 1)
            for slot in range(3)
            if 0 <= (place := call - slot) < len(sizes)
        ]
        for row, spoken in zip(rows, runner.synthesise(rows), strict=True):
            heard[row.slot] += spoken or b""
    for slot, mel in enumerate(mels):
        with torch.inference_mode():
            whole = causal_whole(vocoder, mel, UNIFORM, finalize=True).audio
        alone = (whole.clamp(-1.0, 1.0) * 32767).round().numpy().astype(int)
        ours = np.frombuffer(heard[slot], "<i2").astype(int)
        assert ours.shape == alone.shape
        assert np.abs(ours - alone).max() <= 40


def test_samples_come_as_soon_as_they_are_final(networks: tuple[SpeechModel, TextTokenizer]) -> None:
    """After L frames all but the last four frames and four samples (v3 §5.5)."""
    runner = CausalVocoderRunner(cast("CausalVocoder", networks[0].vocoder), num_slots=1, noise=UNIFORM)
    num_samples = 0
    for number, size in enumerate((24, 50, 100)):
        (spoken,) = runner.synthesise([VocoderRow(0, torch.zeros(80, size), is_first=number == 0, is_last=False)])
        num_samples += len(spoken or b"") // 2
        assert num_samples == 480 * (sum((24, 50, 100)[: number + 1]) - 4) - 4


def test_a_row_that_is_not_finite_fails_alone(networks: tuple[SpeechModel, TextTokenizer]) -> None:
    runner = CausalVocoderRunner(cast("CausalVocoder", networks[0].vocoder), num_slots=2, noise=UNIFORM)
    rows = [
        VocoderRow(slot, torch.full((80, 24), value), is_first=True, is_last=False)
        for slot, value in enumerate((float("nan"), 0.0))
    ]
    broken, whole = runner.synthesise(rows)
    assert (broken, whole is None, runner.num_not_finite) == (None, False, 1)
    (again,) = runner.synthesise([VocoderRow(0, torch.zeros(80, 24), is_first=True, is_last=True)])
    assert again is not None
    assert len(again) == 2 * 480 * 24


def test_the_codes_of_a_model_are_those_of_its_tensors(networks: tuple[SpeechModel, TextTokenizer]) -> None:
    model, tokenizer = networks
    assert model.generation == tokenizer.generation == 3
    assert model.lm.config.num_speech_codes == NUM_CODES


def test_a_pronunciation_reaches_the_tokens_of_phones(
    front: TextFront, networks: tuple[SpeechModel, TextTokenizer]
) -> None:
    """The second generation, and sounds that English has not, have the words."""
    _, tokenizer = networks
    said = f"say {pronounced('Niger', 'ˈnaɪɡəɹ')} and {pronounced('Bach', 'bax')}"
    phones = [tokenizer.written(phone) for phone in ("[N]", "[AY1]", "[G]", "[ER0]")]
    spelled = front.spelled(said)
    assert spelled == f"say {''.join(phones)} and Bach"
    assert [tokenizer.encode_written(phone)[0] for phone in phones] == tokenizer.encode_written(spelled)[
        -len(tokenizer.encode(" and Bach")) - 4 : -len(tokenizer.encode(" and Bach"))
    ]


def test_a_word_of_phones_alone_is_spoken(front: TextFront) -> None:
    assert front.prepare("builtin", front.spelled(pronounced("Niger", "ˈnaɪɡəɹ"))) is not None
