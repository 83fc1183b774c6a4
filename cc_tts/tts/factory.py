"""From the engine's name in the configuration to the engine."""

import difflib
from collections.abc import Callable
from typing import Any, Final

from cc_tts.errors import ConfigError
from cc_tts.tts.engine import Engine
from cc_tts.tts.espeak import EspeakEngine


def _not_yet(**_options: Any) -> Engine:
    raise ConfigError("the engine 'cosyvoice2' is not part of this version yet; use 'espeak'")


_MAKERS: Final[dict[str, Callable[..., Engine]]] = {EspeakEngine.name: EspeakEngine, "cosyvoice2": _not_yet}


def make_engine(name: str, **options: Any) -> Engine:
    """Build the engine called ``name``, not yet started, with the options of its class.

    Raises:
        ConfigError: no engine has this name or takes these options; the message names the nearest one.

    """
    maker = _MAKERS.get(name)
    if maker is None:
        near = difflib.get_close_matches(name, _MAKERS, n=1, cutoff=0.0)
        raise ConfigError(f"no engine is called {name!r}; did you mean {near[0]!r}? Known: {', '.join(_MAKERS)}")
    try:
        return maker(**options)
    except TypeError as error:
        raise ConfigError(f"engine {name!r}: {error}") from error
