"""What is wrong with a value, in words for people."""

import json
from typing import Annotated, Any

import msgspec
import pytest

from cc_tts.config.wording import form, in_words

pytestmark = pytest.mark.unit

KEYS = form(r"^[0-9#]{1,4}$", "1 to 4 of 0-9 and #")


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, "x", "a whole number is needed, not text"),
        (float, [], "a number is needed, not a list"),
        (bool, 1, "true or false is needed, not a whole number"),
        (str, None, "text is needed, not null"),
        (dict, 1.5, "an object is needed, not a number"),
        (int | None, "x", "a whole number or null is needed, not text"),
        (Annotated[int, msgspec.Meta(le=65535)], 65536, "a whole number of at most 65535 is needed"),
        (Annotated[int, msgspec.Meta(ge=1)], 0, "a whole number of at least 1 is needed"),
        (Annotated[float, msgspec.Meta(gt=0.0)], 0, "a number above 0 is needed"),
        (Annotated[str, msgspec.Meta(min_length=1)], "", "text of at least 1 character is needed"),
        (Annotated[list[int], msgspec.Meta(max_length=2)], [1, 2, 3], "a list of at most 2 entries is needed"),
        (Annotated[str, msgspec.Meta(pattern=KEYS)], "x", "1 to 4 of 0-9 and # is needed"),
    ],
)
def test_what_msgspec_says(kind: Any, value: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(json.dumps(value), type=kind)
    said = in_words(str(caught.value))
    assert said == words
    assert "`" not in said


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Input data was truncated", "input data was truncated"),
        ("JSON of another kind", "JSON of another kind"),
        ("", ""),
    ],
)
def test_other_messages(message: str, words: str) -> None:
    assert in_words(message) == words
