"""Every engine at one level: prompts of real voices as they reach the line."""

from collections.abc import AsyncIterator
from itertools import groupby

import numpy as np
import pytest
import pytest_asyncio

from cc_tts.config.schema import Config
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.factory import make_engine
from cc_tts.media.levels import PEAK_DBFS, active_level_dbfs
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

RATE_HZ = 8000
SOUND = 33
PROMPTS = {
    "en-us": "Thank you for calling, how may I help you today? All of our agents are busy at the moment.",
    "hibari-heart": "Thank you for calling, how may I help you today? All of our agents are busy at the moment.",
    "de": "Vielen Dank für Ihren Anruf, bitte warten Sie einen Moment.",
    "cmn": "感谢您的来电，请问有什么可以帮您？",
    "ru": "Спасибо за звонок, пожалуйста, подождите.",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sources() -> AsyncIterator[dict[float, SpeechSource]]:
    engine = make_engine(Config(tts=TtsConfig(first_audio_target_ms=60_000.0)))
    await engine.start()
    yield {target: SpeechSource(engine, Normalizer(), TtsConfig(target_dbfs=target)) for target in (-20.0, -26.0)}
    await engine.stop()


async def heard(source: SpeechSource, voice: str) -> bytes:
    content = TextContent(PROMPTS[voice], voice)
    return b"".join([chunk.data async for chunk in source.open(content, rate_hz=RATE_HZ)])


@pytest.mark.parametrize("voice", PROMPTS)
async def test_speech_is_at_the_target_within_bounds(sources: dict[float, SpeechSource], voice: str) -> None:
    for target, source in sources.items():
        pcm = await heard(source, voice)
        samples = np.abs(np.frombuffer(pcm, np.int16).astype(np.int32))
        assert active_level_dbfs(pcm, RATE_HZ) == pytest.approx(target, abs=2.5)
        assert samples.max() <= 32768 * 10 ** (PEAK_DBFS / 20) + 1
        loud = np.flatnonzero(samples > SOUND)
        assert loud[0] <= 0.020 * RATE_HZ
        assert len(samples) - loud[-1] <= 0.110 * RATE_HZ
        assert abs(np.frombuffer(pcm, np.int16).mean()) < 5


@pytest.mark.parametrize(
    ("text", "voice", "pause_ms"),
    [
        (
            "您的包裹已经从仓库发出，明天下午会送到您家里。Please have your reference number ready for our agent.",
            None,
            300,
        ),
        (
            "Please have your reference number ready for our agent, 您的包裹明天下午会送到您家里，请您耐心等待。",
            None,
            150,
        ),
        ("Спасибо за звонок, пожалуйста, подождите. Please stay on the line for our agent.", "ru", 300),
    ],
)
async def test_voices_are_equally_loud_and_pause_as_one_does_where_languages_meet(
    sources: dict[float, SpeechSource], text: str, voice: str | None, pause_ms: float
) -> None:
    stream = sources[-20.0].open(TextContent(text, voice), rate_hz=RATE_HZ)
    spoken: list[tuple[str, bytes]] = []
    async for chunk in stream:
        named = chunk.begins_source.strip() if chunk.begins_source else ""
        spoken.append((named or spoken[-1][0], chunk.data))
    (first, second) = (b"".join(pcm for _, pcm in part) for _, part in groupby(spoken, lambda each: each[0].isascii()))
    levels = [active_level_dbfs(pcm, RATE_HZ) or 0.0 for pcm in (first, second)]
    assert abs(levels[0] - levels[1]) < 2.0
    loud = np.flatnonzero(np.abs(np.frombuffer(first + second, np.int16).astype(np.int32)) > SOUND)
    border = len(first) // 2
    silence = loud[loud >= border][0] - loud[loud < border][-1]
    assert silence * 1000 / RATE_HZ == pytest.approx(pause_ms, abs=40)
