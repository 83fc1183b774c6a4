"""Text to audio with a small model: every mode, hop by hop and in one piece, and what is refused."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from cc_tts.engines.cosyvoice2.model.checkpoint import ModelError  # noqa: E402
from cc_tts.engines.cosyvoice2.model.loader import SpeechModel, load_model  # noqa: E402
from cc_tts.engines.cosyvoice2.model.networks.flow.flow import FlowReference, fixed_noise  # noqa: E402
from cc_tts.engines.cosyvoice2.model.networks.lm.inputs import LmRequest  # noqa: E402
from cc_tts.engines.cosyvoice2.model.tokenizer import TextTokenizer  # noqa: E402
from cc_tts.engines.cosyvoice2.voice.speakers import Mode, Speaker  # noqa: E402
from cc_tts.engines.cosyvoice2.voice.spoken_text import as_sentence  # noqa: E402
from cc_tts.errors import EngineFailed, Unprocessable  # noqa: E402
from lab.cosyvoice2.schedule import HopSchedule, calls_for  # noqa: E402
from lab.cosyvoice2.tiny_model import NUM_CODES, make_tiny_model  # noqa: E402
from lab.cosyvoice2.token2wav import stream_wav  # noqa: E402
from lab.cosyvoice2.whole_flow import whole_mel  # noqa: E402
from lab.cosyvoice2.whole_vocoder import vocode  # noqa: E402
from tests.parity import synthesizer as synthesizer_module  # noqa: E402
from tests.parity.audio_track import NotFinite, SourceDraws  # noqa: E402
from tests.parity.generation import speak, speak_streamed  # noqa: E402
from tests.parity.samplers import SeededRas  # noqa: E402
from tests.parity.synthesizer import CheckedRas, Synthesizer, to_pcm  # noqa: E402
from tests.support.tiny_speakers import tiny_speaker  # noqa: E402
from tests.support.torch_threads import one_thread  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

pytestmark = pytest.mark.unit

TEXT: Final = "hello and"  # four text tokens with its full stop, so 8 to 80 speech tokens
SEED: Final = 5
SAMPLES_PER_TOKEN: Final = 960
TOLERANCE: Final = 2e-4
MODES: Final[tuple[Mode, ...]] = ("zero_shot", "cross_lingual", "instruct", "builtin")

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(directory: Path) -> SpeechModel:
    return load_model(directory)


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> TextTokenizer:
    return TextTokenizer.from_directory(directory / "CosyVoice-BlankEN")


@pytest.fixture(scope="module")
def synthesizer(model: SpeechModel, tokenizer: TextTokenizer) -> Synthesizer:
    return Synthesizer(model, tokenizer)


def tokens_of(synthesizer: Synthesizer, who: Speaker, text: str = TEXT, *, seed: int = SEED) -> list[int]:
    request = who.lm_request(synthesizer.tokenizer, synthesizer.tokenizer.encode(as_sentence(text)))
    return list(speak(synthesizer.model.lm, request, SeededRas(seed)))


def prompt_of(who: Speaker) -> FlowReference:
    return FlowReference(
        torch.tensor(who.flow_tokens, dtype=torch.int64)[None],
        torch.tensor(who.flow_mel)[None],
        torch.tensor(who.embedding)[None],
    )


def max_error(first: "Tensor", second: "Tensor") -> float:
    assert first.shape == second.shape
    return float((first - second).abs().max())


# --- hop by hop and in one piece


@pytest.mark.parametrize("mode", MODES)
def test_hops_are_the_whole_under_the_chunk_mask(synthesizer: Synthesizer, mode: Mode) -> None:
    who = tiny_speaker(mode)
    tokens = tokens_of(synthesizer, who)
    num_prompt = len(who.flow_tokens)
    calls = list(calls_for(HopSchedule(num_prompt), len(tokens)))
    pieces = list(synthesizer.speak(who, TEXT, seed=SEED))
    assert len(calls) >= 2
    assert len(pieces) == len(calls)

    with torch.inference_mode():
        expected = stream_wav(
            synthesizer.model.flow,
            partial(vocode, synthesizer.model.vocoder),
            prompt_of(who),
            torch.tensor([tokens]),
            calls,
            noise=fixed_noise(),
            incremental=False,
            draw=SourceDraws(SEED, synthesizer.model),
        )
        whole = torch.cat(list(expected), dim=1)[0]
    audio = torch.cat(pieces)
    assert audio.shape == (len(tokens) * SAMPLES_PER_TOKEN,)
    assert max_error(audio, whole) < TOLERANCE
    assert float(audio.std()) > 1e-3


@pytest.mark.parametrize("mode", MODES)
def test_one_piece_is_that_of_the_reference(synthesizer: Synthesizer, mode: Mode) -> None:
    who = tiny_speaker(mode)
    tokens = tokens_of(synthesizer, who)
    (audio,) = synthesizer.speak(who, TEXT, seed=SEED, stream=False)
    prompt = prompt_of(who)
    with torch.inference_mode():
        mel = whole_mel(
            synthesizer.model.flow,
            torch.tensor([tokens]),
            prompt,
            streaming=False,
            finalize=True,
            noise=fixed_noise(),
        )
        whole, _ = vocode(synthesizer.model.vocoder, mel, draws=SourceDraws(SEED, synthesizer.model)(mel.shape[2]))
    assert audio.shape == (len(tokens) * SAMPLES_PER_TOKEN,)
    assert torch.equal(audio, whole[0])


def test_the_first_piece_comes_before_the_last_token(synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def watched(*args: Any, **options: Any) -> Iterator[int]:
        for token in speak(*args, **options):
            drawn.append(token)
            yield token

    monkeypatch.setattr(synthesizer_module, "speak", watched)
    pieces = synthesizer.speak(tiny_speaker("cross_lingual", num_prompt=25), TEXT, seed=SEED)
    first = next(pieces)
    assert len(drawn) == 28
    assert len(first) == 25 * SAMPLES_PER_TOKEN - 3840  # the crossfade is held back


def test_the_seed_decides(synthesizer: Synthesizer) -> None:
    who = tiny_speaker("builtin")
    once, again, other = (torch.cat(list(synthesizer.speak(who, TEXT, seed=seed))) for seed in (1, 1, 2))
    assert torch.equal(once, again)
    assert once.shape != other.shape or not torch.equal(once, other)


def test_twice_as_fast_is_half_as_long(synthesizer: Synthesizer) -> None:
    who = tiny_speaker("cross_lingual")
    num_tokens = len(tokens_of(synthesizer, who))
    (fast,) = synthesizer.speak(who, TEXT, seed=SEED, speed=2.0)
    (slow,) = synthesizer.speak(who, TEXT, seed=SEED, speed=0.5)
    assert len(fast) == num_tokens * SAMPLES_PER_TOKEN // 2
    assert len(slow) == num_tokens * SAMPLES_PER_TOKEN * 2


def test_compat_hears_everything_in_its_last_piece(model: SpeechModel, tokenizer: TextTokenizer) -> None:
    who = tiny_speaker("cross_lingual")
    compat = Synthesizer(model, tokenizer, compat=True)
    request = who.lm_request(tokenizer, tokenizer.encode(as_sentence(TEXT)))
    tokens = list(speak(model.lm, request, SeededRas(SEED), compat=True))
    calls = list(calls_for(HopSchedule(len(who.flow_tokens), compat=True), len(tokens)))
    assert not calls[-1].streaming
    with torch.inference_mode():
        expected = stream_wav(
            model.flow,
            partial(vocode, model.vocoder),
            prompt_of(who),
            torch.tensor([tokens]),
            calls,
            noise=fixed_noise(),
            draw=SourceDraws(SEED, model),
        )
        whole = torch.cat(list(expected), dim=1)[0]
    assert max_error(torch.cat(list(compat.speak(who, TEXT, seed=SEED))), whole) < TOLERANCE


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("text", ["", " \n", "?!", "\uff0c。"])
def test_nothing_to_say_is_no_audio(synthesizer: Synthesizer, text: str, stream: bool) -> None:
    assert list(synthesizer.speak(tiny_speaker("builtin"), text, seed=1, stream=stream)) == []


# --- text that comes in pieces


def interleaved_tokens(synthesizer: Synthesizer, who: Speaker, pieces: Sequence[str]) -> list[int]:
    request = who.lm_request(synthesizer.tokenizer, ())
    return list(
        speak_streamed(
            synthesizer.model.lm,
            [synthesizer.tokenizer.encode(piece) for piece in pieces],
            SeededRas(SEED),
            prompt_text=request.prompt_text,
            prompt_speech=request.prompt_speech,
        )
    )


@pytest.mark.parametrize("mode", MODES)
def test_pieces_of_text_are_spoken_as_they_come(synthesizer: Synthesizer, mode: Mode) -> None:
    who = tiny_speaker(mode)
    pieces = ["hel", "lo an", "", "d you."]
    tokens = interleaved_tokens(synthesizer, who, pieces)
    audio = torch.cat(list(synthesizer.speak_streamed(who, iter(pieces), seed=SEED)))
    assert audio.shape == (len(tokens) * SAMPLES_PER_TOKEN,)
    if mode != "cross_lingual":  # once is enough: no mode matters behind the tokens
        return
    with torch.inference_mode():
        expected = stream_wav(
            synthesizer.model.flow,
            partial(vocode, synthesizer.model.vocoder),
            prompt_of(who),
            torch.tensor([tokens]),
            calls_for(HopSchedule(len(who.flow_tokens)), len(tokens)),
            noise=fixed_noise(),
            draw=SourceDraws(SEED, synthesizer.model),
        )
        whole = torch.cat(list(expected), dim=1)[0]
    assert max_error(audio, whole) < TOLERANCE


def test_audio_comes_before_the_text_ends(synthesizer: Synthesizer) -> None:
    speech = synthesizer.interleaved(tiny_speaker("cross_lingual", num_prompt=25), seed=SEED)
    assert speech.next_audio() is None
    speech.add_text("hello and welcome to the service line. your call is important to us.")
    assert speech.next_audio() is not None
    assert not speech.is_over


def test_no_text_at_all_is_no_audio(synthesizer: Synthesizer) -> None:
    assert list(synthesizer.speak_streamed(tiny_speaker("zero_shot"), ["", ""], seed=1)) == []


# --- bounds


def longest(synthesizer: Synthesizer, who: Speaker) -> int:
    """How many text tokens are just not too many."""
    request = who.lm_request(synthesizer.tokenizer, ())
    return (4096 - 2 - len(request.prompt_text) - len(request.prompt_speech)) // 21


@pytest.mark.parametrize("mode", ["builtin", "zero_shot"])
def test_a_text_that_may_outgrow_the_model_is_refused(synthesizer: Synthesizer, mode: Mode) -> None:
    who = tiny_speaker(mode)
    num_tokens = longest(synthesizer, who)
    digits = len(synthesizer.tokenizer.encode("1" * 50)) // 50
    assert digits == 1
    synthesizer.speak(who, "1" * (num_tokens - 1), seed=1)  # and a full stop
    with pytest.raises(Unprocessable, match="split it"):
        synthesizer.speak(who, "1" * num_tokens, seed=1)


def test_noise_bounds_the_text_too(model: SpeechModel, tokenizer: TextTokenizer) -> None:
    who = tiny_speaker("cross_lingual")
    short = Synthesizer(model, tokenizer, noise=fixed_noise()[:, :, : 2 * (45 + 80)])
    assert len(tokenizer.encode(TEXT + ".")) * 20 > 80
    with pytest.raises(Unprocessable, match="split it"):
        short.speak(who, TEXT, seed=1)


def test_text_in_pieces_is_bounded(synthesizer: Synthesizer) -> None:
    speech = synthesizer.interleaved(tiny_speaker("builtin"), seed=1)
    speech.add_text("1" * 100)
    with pytest.raises(Unprocessable, match="split it"):
        speech.add_text("1" * 100)


@pytest.mark.parametrize("speed", [0.0, -1.0, 0.49, 2.01, float("nan"), float("inf")])
def test_odd_speeds_are_refused(synthesizer: Synthesizer, speed: float) -> None:
    with pytest.raises(Unprocessable, match="speed"):
        synthesizer.speak(tiny_speaker("builtin"), TEXT, seed=1, speed=speed)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_odd_seeds_are_refused(synthesizer: Synthesizer, seed: int) -> None:
    with pytest.raises(Unprocessable, match="seed"):
        synthesizer.speak(tiny_speaker("builtin"), TEXT, seed=seed)
    with pytest.raises(Unprocessable, match="seed"):
        synthesizer.interleaved(tiny_speaker("builtin"), seed=seed)


@pytest.mark.parametrize("name", ["llm_tokens", "flow_tokens"])
def test_speech_tokens_of_another_model_are_refused(synthesizer: Synthesizer, name: str) -> None:
    foreign: dict[str, Any] = {name: np.full(45, NUM_CODES, np.int32)}
    who = tiny_speaker("zero_shot", **foreign)
    with pytest.raises(ModelError, match="speech tokens"):
        synthesizer.speak(who, TEXT, seed=1)


# --- numbers that are none


class Broken:
    """Puts something that is not a number into what a network gives."""

    def __init__(self, function: Any, part: int | None = None) -> None:
        self._function, self._part = function, part

    def __call__(self, *args: Any, **options: Any) -> Any:
        result = self._function(*args, **options)
        target = result if self._part is None else result[self._part]
        target[..., 0] = float("nan")
        return result


@pytest.mark.parametrize(
    ("part", "method", "stage"),
    [("flow", "_solve", "flow"), ("vocoder", "synthesize", "vocoder"), ("lm", "prefill", "language model")],
)
def test_numbers_that_are_none_end_the_speech(
    synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch, part: str, method: str, stage: str
) -> None:
    who = tiny_speaker("cross_lingual")
    synthesizer.track(who, seed=1)  # its prompt is sound
    network = getattr(synthesizer.model, part)
    monkeypatch.setattr(network, method, Broken(getattr(network, method), 0))
    with pytest.raises(NotFinite, match=f"the {stage} gave") as caught:
        list(synthesizer.speak(who, TEXT, seed=1))
    assert caught.value.stage == stage
    assert isinstance(caught.value, EngineFailed)


def test_impossible_ids_are_not_drawn_from() -> None:
    with pytest.raises(NotFinite):
        CheckedRas(1)(torch.full((246,), -torch.inf), [])


def test_speech_without_end_is_cut(synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch) -> None:
    who = tiny_speaker("builtin")
    text = LmRequest(synthesizer.tokenizer.encode(TEXT + "."))
    monkeypatch.setattr(CheckedRas, "__call__", lambda _self, _log_probs, _history: 7)
    audio = torch.cat(list(synthesizer.speak(who, TEXT, seed=1)))
    assert len(audio) == text.limits.max_len * SAMPLES_PER_TOKEN


# --- samples


def test_pcm_is_rounded_and_clipped() -> None:
    audio = torch.tensor([0.0, 1.0, -1.0, 1.07, -1.07, 0.5, 1.4 / 32767, 1.6 / 32767])
    assert np.frombuffer(to_pcm(audio), "<i2").tolist() == [0, 32767, -32767, 32767, -32767, 16384, 1, 2]
    assert to_pcm(torch.zeros(0)) == b""
