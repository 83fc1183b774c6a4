"""What a test needs and a machine may lack. Without it the test is skipped, or fails where ``CC_TTS_REQUIRE`` names it.

``CC_TTS_REQUIRE`` is a comma-separated list of ``peers`` (sipp, baresip, tshark, openssl, curl), ``asterisk``, ``kamailio``,
``clients``, ``clients-npm``, ``jambonz`` (make clients JAMBONZ=1), ``server-build``, ``charts`` (requirements/charts.txt),
``browser`` (requirements/browser.txt and Chromium), ``vad``, ``otel`` (requirements/otel.txt) and ``ray``
(requirements/ray.txt).
"""

import os
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal, NoReturn

import pytest

from cc_tts.errors import ConfigError
from cc_tts.tracing import otlp
from cc_tts.vad.silero import find_model

Need = Literal[
    "peers",
    "asterisk",
    "kamailio",
    "clients",
    "clients-npm",
    "jambonz",
    "server-build",
    "charts",
    "browser",
    "vad",
    "otel",
    "ray",
]

_NO_MODULE: Final = "could not import"
_NEURAL: Final = "the packages of the neural engine are not installed: make neural"


def missing(need: Need, advice: str) -> NoReturn:
    """End a test whose ``need`` is not here. ``advice`` says what is missing and which command adds it."""
    if need in os.environ.get("CC_TTS_REQUIRE", "").split(","):
        pytest.fail(advice)
    pytest.skip(advice)


def summary(reasons: Iterable[str]) -> list[str]:
    """One line a reason, with the number of skipped tests; a module that cannot be imported counts as one."""
    counts = Counter(
        _NEURAL if _NO_MODULE in reason else reason.removeprefix("Skipped: ").splitlines()[0] for reason in reasons
    )
    return [f"{count:5}  {reason}" for reason, count in counts.most_common()]


def traces() -> None:
    """End a test that exports traces where the extra is not installed."""
    if not otlp.is_installed():
        missing("otel", "what exports traces is not installed: pip install -r requirements/otel.txt")


def voice_model() -> None:
    """End a test that hears speech where the model is not installed."""
    try:
        find_model()
    except ConfigError as error:
        missing("vad", error.detail)
