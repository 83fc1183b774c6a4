"""Settings ``section__key="value"`` of a server under test, in its environment or in its file."""

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from cc_tts.config.schema import RELOADABLE


def in_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """``section__key="value"`` as variables of the environment."""
    return {f"CC_TTS_{name.upper()}": value for name, value in settings.items()}


def with_settings(config: str, settings: Mapping[str, str]) -> str:
    """The configuration with ``section__key: value`` besides."""
    tree = tomllib.loads(config)
    for name, text in settings.items():
        *sections, key = name.split("__")
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
        try:
            table[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            table[key] = text
    return "".join(f"{section} = {_toml(table)}\n" for section, table in tree.items()) if settings else config


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def is_reloadable(name: str) -> bool:
    """Whether a running server takes ``section__key`` over, and still answers requests without a token."""
    section, key = name.split("__")[:2]
    return (section in RELOADABLE or f"{section}.{key}" in RELOADABLE) and section not in ("http", "log", "tls")
