"""The files of the console: both languages say the same, and nothing is run or fetched but what is in the package."""

import json
import re
from importlib import resources
from typing import Final

import pytest

pytestmark = pytest.mark.unit

FILES: Final = {
    each.name: each.read_text("utf-8") for each in resources.files("cc_tts.api.console").joinpath("files").iterdir()
}
SCRIPTS: Final = {name: text for name, text in FILES.items() if name.endswith(".js")}
CODE: Final = "".join(SCRIPTS.values())
STRINGS: Final[dict[str, list[str]]] = json.loads(FILES["strings.json"])


def test_every_text_is_there_in_english_and_chinese() -> None:
    for key, texts in STRINGS.items():
        english, chinese = texts
        assert english, key
        assert chinese, key
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", chinese)), key


def test_texts_are_those_that_are_used() -> None:
    asked = set(re.findall(r"""\bt\("([^"]+)""", CODE))
    assert asked
    assert not asked - STRINGS.keys()
    named = {key for key in STRINGS if f'"{key}"' in CODE or re.search(rf"\b{re.escape(key)}: ", CODE)}
    assert not {key for key in STRINGS if not key.startswith(("word ", "call "))} - named


def test_nothing_becomes_markup() -> None:
    assert not re.findall(r"\w*(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\()", CODE)
    page = FILES["index.html"]
    assert not re.findall(r"<script[^>]*>[^<]|<style| style=| on\w+=", page)


def test_nothing_comes_from_elsewhere() -> None:
    addresses = {address for text in FILES.values() for address in re.findall(r"https?://[^\s\"'`]+", text)}
    assert addresses == {"http://www.w3.org/2000/svg"}
    imported = {name for text in SCRIPTS.values() for name in re.findall(r'from "([^"]+)"', text)}
    assert {name.removeprefix("./") for name in imported} <= SCRIPTS.keys()
