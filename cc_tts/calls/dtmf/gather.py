"""The request of a client to collect the keys that a caller presses (DTMF)."""

from dataclasses import dataclass
from typing import Final, Literal

from cc_tts.speech.prompt import Prompt, Then

MAX_DIGITS: Final = 128  # unmeasured
MAX_TRIES: Final = 10  # unmeasured
MAX_TIMEOUT_MS: Final = 3_600_000  # unmeasured
DEFAULT_TIMEOUT_MS: Final = 5000
"""The bounds of a request, and the default timeouts. All four are unmeasured."""

GatherResult = Literal["finish_key", "max_digits", "timeout", "cancelled", "call_ended", "server_restarted"]
"""The reason why a gather ended. ``valid`` says whether its digits can be used."""
TimedOut = Literal["initial", "inter_digit", "total"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitsTo:
    """The recipient of the digits of a sensitive gather: a connection that reads events, or the name of a webhook."""

    connection: str = ""
    webhook: str = ""


NOBODY: Final = DigitsTo()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherRequest:
    """A request to collect keys. A timeout of ``None`` never expires. ``initial_timeout_ms`` is for the first key,
    ``inter_digit_timeout_ms`` for each later one, ``timeout_ms`` for all keys, counted from the end of the first prompt.
    ``invalid_prompt`` is said before another try, else ``prompt`` again. The digits of a ``sensitive`` gather go to
    ``digits_to``, and to readers of events that may see digits. ``then`` is what happens to the call afterwards.
    """

    gather_id: str | None = None
    min_digits: int = 1
    max_digits: int = MAX_DIGITS
    finish_on_key: str = "#"
    valid_digits: str = "0123456789*#"
    initial_timeout_ms: int | None = DEFAULT_TIMEOUT_MS
    inter_digit_timeout_ms: int | None = DEFAULT_TIMEOUT_MS
    timeout_ms: int | None = None
    prompt: Prompt | None = None
    invalid_prompt: Prompt | None = None
    max_tries: int = 1
    flush_buffer: bool = False
    sensitive: bool = False
    digits_to: DigitsTo = NOBODY
    client_state: str | None = None
    then: Then = "stay"
