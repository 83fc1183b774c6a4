"""``cc-tts doctor --path``: the stages of a prompt on a call, as they describe themselves."""

from cc_tts.config.schema import Config
from cc_tts.media.start_threshold import StartThreshold
from cc_tts.metrics import Metrics
from cc_tts.speech.cache.shared_synthesis import CachedSource
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.startup import engine_without_model
from cc_tts.text.normalizer import Normalizer


async def prompt_path(config: Config, voice: str | None = None) -> str:
    """Return the path in one line; ``voice`` is the prompt's, by default the configuration's. Starts the engine without
    loading a model.
    """
    async with engine_without_model(config) as engine:
        cache = CachedSource(config.cache, Metrics()) if config.cache.enabled else None
        rate_hz = config.rtp.clock_rate_hz
        source = SpeechSource(engine, Normalizer(), config.tts, cache=cache, line_rate_hz=rate_hz)
        path = source.path(TextContent("", voice))
    playout = config.playout
    threshold = StartThreshold(floor_ms=playout.start_threshold_min_ms, ceiling_ms=playout.start_threshold_max_ms)
    on_the_line = [f"window {playout.window_ms} ms", "UA", f"playout ({threshold})", " or ".join(config.rtp.codecs)]
    return " ▸ ".join([*path, *on_the_line])
