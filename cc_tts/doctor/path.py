"""``cc-tts doctor --path``: what a prompt goes through on a call, as the parts of the path describe themselves."""

from typing import Final

from cc_tts.config.schema import Config
from cc_tts.engines.factory import make_engine
from cc_tts.media.start_threshold import StartThreshold
from cc_tts.metrics import Metrics
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.shared_synthesis import CachedSource
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer

ARROW: Final = " ▸ "


async def prompt_path(config: Config, voice: str | None = None) -> str:
    """One line; ``voice`` is that of the prompt, by default the configuration's. Starts the engine, loads no model."""
    engine = make_engine(config, purpose="check")
    await engine.start()
    try:
        cached = CachedSource(config.cache, Metrics())
        cache = cached if config.cache.enabled else None
        rate_hz = config.rtp.clock_rate_hz
        source = SpeechSource(engine, Normalizer(), config.tts, cache=cache, line_rate_hz=rate_hz)
        playout = config.playout
        threshold = StartThreshold(floor_ms=playout.start_threshold_min_ms, ceiling_ms=playout.start_threshold_max_ms)
        on_the_line = [f"window {playout.window_ms} ms", "UA", f"playout ({threshold})", " or ".join(config.rtp.codecs)]
        return ARROW.join([*source.path(TextContent("", voice)), *on_the_line])
    finally:
        await engine.stop()
