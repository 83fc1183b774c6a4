"""Is the sound of the fast ways that of the slow one, and what does each saving cost?

python -m bench.engine.quality [--size tiny|full] [--device cpu|cuda] [--parts gates,savings]
python -m bench.engine.quality --parts savings --model-dir DIR --voices-dir DIR --voice ID --recognise

The gates: seams, end of the utterance, numbers that are not finite, first hops. The savings: :mod:`bench.engine.savings`; a
voice of the model says lines with each of them. ``--recognise`` is the Whisper of
``bench.intelligibility``. What ``--name engine_savings``, or with trained weights ``engine_savings_trained``, leaves is the
table that ``python -m tests.architecture.state_tables`` prints in docs/engine-notes.md.

Every figure stands beside the same figure of the same speech made in one piece. With rule-filled weights that is all it can
tell: whether two ways of computing agree, not how either sounds. A click is a jump of the first difference of the samples
against what is usual around it.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bench.engine.lab import Lab, Rig, keep, lab_of, parser_of
from bench.engine.model import VOICE, voice
from bench.engine.phone_load import Caller, PhoneLoad, figures
from bench.engine.savings import Ears, exactness, spoken
from bench.engine.work import Runners, SpeechWork, prompt_of
from bench.intelligibility.__main__ import Recogniser
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS
from cc_tts.engines.cosyvoice.model.loader import generation_of_directory
from cc_tts.engines.cosyvoice.model.networks.flow.flow import FlowReference
from cc_tts.engines.cosyvoice.runners.flow import FlowRow, FlowVoice
from cc_tts.engines.cosyvoice.runners.vocoder import CROSSFADE_SAMPLES, VocoderRow
from lab.cosyvoice.schedule import HopSchedule, calls_for
from lab.cosyvoice.tiny_model import make_tiny_model
from lab.cosyvoice.whole_flow import whole_mel
from lab.cosyvoice.whole_vocoder import vocode
from lab.server_under_test import Json

NUM_SEQUENCES: Final = 4
NUM_TOKENS: Final = 160
FIRST_HOPS: Final = (8, 10, 12, 15, 25)
PROMPTS: Final = (125, 110)
"""A multiple of 25, and one that lacks 15 tokens to it."""
FULL_SCALE: Final = 32767.0
SAMPLES_PER_TOKEN: Final = 960
RATE_HZ: Final = 24_000
NEAR: Final = 24
"""1 ms on each side of a join: where its jump is looked for."""
AROUND: Final = 480
"""20 ms on each side: what is usual there."""
COMB: Final = 1201
"""Distance of the places at which the whole run is sampled for what is usual; no multiple of a frame."""
MARGIN: Final = 1.5
"""A join that jumps so many times more than anything in the whole run is a click."""
TAIL_MS: Final = 40
BODY_MS: Final = 400

Samples = npt.NDArray[np.float64]


def jump(audio: Samples, place: int) -> float:
    """The largest first difference at ``place`` against the median of those around it; 0 without any sound."""
    differences = np.abs(np.diff(audio[max(0, place - AROUND) : place + AROUND]))
    centre = place - max(0, place - AROUND)
    near = differences[max(0, centre - NEAR) : centre + NEAR]
    usual = float(np.median(differences)) if differences.size else 0.0
    return float(near.max()) / usual if near.size and usual > 0.0 else 0.0


def comb(audio: Samples) -> list[float]:
    """Jumps at places all over ``audio``: what is usual in this speech."""
    return [jump(audio, place) for place in range(AROUND, len(audio) - AROUND, COMB)]


def seams(streamed: Samples, whole: Samples, joins: Sequence[int]) -> Json:
    """Jumps at the joins of the streamed audio, at the same places of the whole, and how many of them are clicks.

    ``joins`` are samples at which a new piece begins, or at which its fade is over.
    """
    at_joins = [jump(streamed, place) for place in joins]
    same = [jump(whole, place) for place in joins]
    limit = MARGIN * max(comb(whole), default=0.0)
    return {
        "num_joins": len(joins),
        "jump_at_joins": _median_and_max(at_joins),
        "jump_of_whole_there": _median_and_max(same),
        "jump_of_whole_anywhere": _median_and_max(comb(whole)),
        "click_limit": round(limit, 2),
        "num_clicks": sum(score > limit for score in at_joins),
    }


def end_noise(audio: Samples) -> Json:
    """The last 40 ms against the 400 ms before them: loudness and the largest first difference."""
    tail = audio[-RATE_HZ * TAIL_MS // 1000 :]
    body = audio[-RATE_HZ * (TAIL_MS + BODY_MS) // 1000 : -RATE_HZ * TAIL_MS // 1000]
    return {"rms_ratio": _ratio(_rms(tail), _rms(body)), "step_ratio": _ratio(_step(tail), _step(body))}


def _rms(audio: Samples) -> float:
    return float(np.sqrt(np.mean(audio**2))) if audio.size else 0.0


def _step(audio: Samples) -> float:
    return float(np.abs(np.diff(audio)).max()) if audio.size > 1 else 0.0


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 3) if whole > 0.0 else None


def _median_and_max(values: Sequence[float]) -> Json:
    if not values:
        return {"n": 0}
    return {"n": len(values), "median": round(float(np.median(values)), 2), "max": round(float(max(values)), 2)}


@dataclass(slots=True)
class Streamed:
    """A sequence as the engine's runners give it."""

    mel: Tensor  # [mels, frames]
    audio: Samples
    joins: list[int]
    num_failed: int


def streamed(
    runners: Runners,
    kept: FlowVoice,
    tokens: Sequence[Sequence[int]],
    *,
    first_hop: int = CHUNK_TOKENS,
) -> list[Streamed]:
    """All sequences together, hop by hop, through flow and vocoder of the engine."""
    num_prompt, count = len(kept.tokens), len(tokens)
    for slot in range(count):
        runners.flow.open(slot, kept)
    mels: list[list[Tensor]] = [[] for _ in range(count)]
    pieces: list[list[bytes]] = [[] for _ in range(count)]
    num_failed = [0] * count
    num_known = 0
    for call in calls_for(HopSchedule(num_prompt, hop=first_hop), len(tokens[0])):
        given = num_prompt + call.num_given + call.num_new
        partial = not call.finalize and given % CHUNK_TOKENS != 0
        rows = [
            FlowRow(slot, tokens[slot][num_known : call.num_tokens], call.finalize, partial) for slot in range(count)
        ]
        new = runners.flow.step(rows)
        heard = runners.vocoder.synthesise(
            [VocoderRow(slot, new[slot], num_known == 0, call.finalize) for slot in range(count)]
        )
        for slot in range(count):
            mels[slot].append(new[slot].clone())
            pieces[slot].append(heard[slot] or b"")
            num_failed[slot] += heard[slot] is None
        num_known = call.num_tokens
    for slot in range(count):
        runners.flow.close(slot)
    return [
        Streamed(torch.cat(mels[slot], dim=1), _samples(b"".join(pieces[slot])), _joins(pieces[slot]), num_failed[slot])
        for slot in range(count)
    ]


def _samples(pcm: bytes) -> Samples:
    return np.frombuffer(pcm, dtype="<i2").astype(np.float64) / FULL_SCALE


def _joins(pieces: Sequence[bytes]) -> list[int]:
    """Where a piece begins, and where its fade is over."""
    begins = np.cumsum([len(piece) // 2 for piece in pieces])[:-1].tolist()
    end = sum(len(piece) // 2 for piece in pieces)
    return sorted({*begins, *(begin + CROSSFADE_SAMPLES for begin in begins if begin + CROSSFADE_SAMPLES < end)})


@torch.inference_mode()
def in_one_piece(work: SpeechWork, prompt: FlowReference, tokens: Sequence[int]) -> tuple[Tensor, Samples]:
    """Mel [mels, frames] and audio under the same mask without any join."""
    row = torch.tensor([list(tokens)], device=work.noise.device)
    mel = whole_mel(
        work.model.flow,
        row,
        prompt,
        streaming=True,
        finalize=True,
        noise=work.noise,
    )
    audio, _ = vocode(work.model.vocoder, mel)
    clipped = audio[0].float().clamp(-1.0, 1.0).cpu().numpy().astype(np.float64)
    return mel[0].float(), np.round(clipped * FULL_SCALE) / FULL_SCALE


def whole_gates(work: SpeechWork, runners: Runners) -> Json:
    """Streamed in batch against in one piece: mel, seams, end of the utterance."""
    rows: list[Json] = []
    for tokens, ours in zip(work.tokens, streamed(runners, runners.voice, work.tokens), strict=True):
        mel, audio = in_one_piece(work, work.prompt, tokens)
        rows.append(
            {
                "mel_max_difference": float((ours.mel.float() - mel).abs().max()),
                "mel_max": round(float(mel.abs().max()), 3),
                "same_length": len(ours.audio) == len(audio),
                "seams": seams(ours.audio, audio, ours.joins),
                "end_noise": {"streamed": end_noise(ours.audio), "in_one_piece": end_noise(audio)},
                "failed_chunks": ours.num_failed,
            }
        )
    return {
        "sequences": rows,
        "num_joins": sum(row["seams"]["num_joins"] for row in rows),
        "num_clicks": sum(row["seams"]["num_clicks"] for row in rows),
        "mel_max_difference": max(row["mel_max_difference"] for row in rows),
    }


def first_hops(work: SpeechWork, runners: Runners, lab: Lab) -> Json:
    """What a first hop shorter than a chunk changes, and what it gains."""
    result: Json = {}
    for num_prompt in PROMPTS:
        prompt = prompt_of(voice(VOICE, lab.size, num_prompt=num_prompt), work.model)
        kept = runners.flow.add_voice(prompt)
        exact = [in_one_piece(work, prompt, tokens) for tokens in work.tokens]
        usual = HopSchedule(num_prompt).needed_tokens
        cells: Json = {}
        for hop in FIRST_HOPS:
            ours = streamed(runners, kept, work.tokens, first_hop=hop)
            num_first = HopSchedule(num_prompt, hop=hop).needed_tokens - work.model.flow.config.encoder.lookahead
            cells[str(hop)] = _first_hop(ours, exact, num_first) | {
                "tokens_waited_for": HopSchedule(num_prompt, hop=hop).needed_tokens,
                "tokens_sooner": usual - HopSchedule(num_prompt, hop=hop).needed_tokens,
                "first_audio_s": round((num_first * SAMPLES_PER_TOKEN - CROSSFADE_SAMPLES) / 24_000, 3),
            }
        runners.flow.drop_voice(kept)
        result[f"prompt of {num_prompt}"] = cells
    return result


def _first_hop(ours: Sequence[Streamed], exact: Sequence[tuple[Tensor, Samples]], num_first: int) -> Json:
    end = 2 * num_first
    errors, shares, jumps, usual, clicks, later = [], [], [], [], 0, []
    for one, (mel, audio) in zip(ours, exact, strict=True):
        difference = one.mel[:, :end].float() - mel[:, :end]
        errors.append(float(difference.abs().max()))
        shares.append(float(difference.norm() / mel[:, :end].norm()))
        later.append(float((one.mel[:, end:].float() - mel[:, end:]).abs().max()))
        steps = mel.diff(dim=1).norm(dim=0)
        jumps.append(float((one.mel[:, end].float() - one.mel[:, end - 1].float()).norm() / steps.median()))
        usual.append(float(steps[end - 1] / steps.median()))
        begin = num_first * SAMPLES_PER_TOKEN - CROSSFADE_SAMPLES
        clicks += seams(one.audio, audio, [begin, begin + CROSSFADE_SAMPLES])["num_clicks"]
    return {
        "mel_difference_max": round(max(errors), 5),
        "mel_difference_share": round(float(np.median(shares)), 5),
        "mel_difference_after_it": round(max(later), 6),
        "mel_jump_at_join": round(float(np.median(jumps)), 3),
        "mel_jump_of_exact_there": round(float(np.median(usual)), 3),
        "clicks": clicks,
    }


def finite_gate(rig: Rig, *, seconds: float) -> Json:
    """Count what is not finite in the engine at work, then break a weight and see that the counter counts."""
    counts = []
    for is_broken in (False, True):
        num_before = rig.runner.num_not_finite
        bias = rig.runner._model.flow.encoder_proj.bias  # noqa: SLF001 - a fault to be found
        kept = bias.detach().clone()
        if is_broken:
            bias.data[0] = float("nan")
        engine = rig.engine(EngineConfig(admits_all=True))
        callers = [Caller(next_ms=0.0) for _ in range(2)]
        load = PhoneLoad(engine, rig.clock, seed=1, seconds=(1.0, 2.0))
        tally = load.run(callers, for_ms=1000.0 * seconds, warm_up_ms=0.0, num_pages_used=lambda: 0)
        engine.close()
        bias.data.copy_(kept)
        counts.append((figures(tally)["sentences"], rig.runner.num_not_finite - num_before, tally.num_failed))
    (sentences, num_bad, num_failed), (_, num_found, _) = counts
    return {
        "sentences": sentences,
        "not_finite": num_bad,
        "failed": num_failed,
        "found_when_a_weight_is_broken": num_found > 0,
    }


def gates(lab: Lab, arguments: argparse.Namespace) -> Json:
    work = SpeechWork(lab, lab.model(), num_sequences=NUM_SEQUENCES, num_tokens=NUM_TOKENS)
    runners = work.runners(graphs=lab.graphs and lab.is_cuda)
    result: Json = {"work": f"{NUM_SEQUENCES} sequences of {NUM_TOKENS} tokens together, no noise in the source"}
    result["whole"] = whole_gates(work, runners)
    result["first_hop"] = first_hops(work, runners, lab)
    del work, runners
    result["finite"] = finite_gate(lab.rig(max_streams=2), seconds=3.0 if arguments.quick else 10.0)
    result["passed"] = bool(
        result["whole"]["num_clicks"] == 0
        and all(row["same_length"] and not row["failed_chunks"] for row in result["whole"]["sequences"])
        and result["finite"]["not_finite"] == 0
        and result["finite"]["found_when_a_weight_is_broken"]
    )
    return result


def print_gates(result: Json) -> None:
    whole = result["whole"]
    print(
        f"\n{whole['num_joins']} joins, {whole['num_clicks']} clicks, mel differs by {whole['mel_max_difference']:.2g}"
    )
    for prompt, cells in result["first_hop"].items():
        print(
            f"{prompt}: first hop, tokens sooner, mel difference (max, share), jump at the join (exact there), clicks"
        )
        for hop, cell in cells.items():
            jump = f"{cell['mel_jump_at_join']} ({cell['mel_jump_of_exact_there']})"
            error = f"{cell['mel_difference_max']} {cell['mel_difference_share']}"
            print(f"  {hop:>3} {cell['tokens_sooner']:>3}  {error}  {jump}  {cell['clicks']}")
    print(f"finite: {result['finite']}\n{'passed' if result['passed'] else 'NOT PASSED'}")


def save_costs(lab: Lab, arguments: argparse.Namespace) -> Json:
    """Each saving of the model that there is; of both generations, where small ones are made."""
    directories = {str(generation_of_directory(lab.model_dir)): lab.model_dir}
    if arguments.model_dir is None and lab.size == "tiny":
        directories["3"] = make_tiny_model(lab.model_dir / "third", 3)
    result: Json = {}
    for generation, directory in directories.items():
        print(f"\nCosyVoice{generation}")
        result[generation] = {"exactness": exactness(directory, lab.device)}
        if arguments.voice:
            recogniser = Recogniser() if arguments.recognise else None
            ears = Ears(arguments.voice, arguments.voices_dir, arguments.language, recogniser)
            result[generation]["spoken"] = spoken(directory, lab.device, ears)
    return result


def main() -> None:
    """Run, print, save; the exit status says whether all gates passed."""
    parser = parser_of(__doc__)
    parser.add_argument("--parts", default="gates,savings", help="which of the two")
    parser.add_argument("--voice", help="a voice of the model, which says lines with each saving")
    parser.add_argument("--voices-dir", type=Path, help="where it was enrolled")
    parser.add_argument("--language", default="en", help="of the lines")
    parser.add_argument("--recognise", action="store_true", help="Whisper counts the words that are wrong")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    with lab_of(arguments) as lab:
        result: Json = {}
        if "savings" in parts:
            result["savings"] = save_costs(lab, arguments)
        if "gates" in parts:
            result |= gates(lab, arguments)
            print_gates(result)
        keep(lab, arguments, result)
        if not result.get("passed", True):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
