"""The configuration in force, for ``cc-tts check-config``: every key with its value, but no secrets."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from cc_tts.config.schema import Config


def lines(config: Config) -> Iterator[str]:
    """Yield the lines of each section, and of each table with a name, such as a route."""
    tables = [(key.name, getattr(config, key.name)) for key in fields(config)]
    for name, section in tables:
        if isinstance(section, dict):
            tables += [(f'{name}."{each}"', table) for each, table in section.items()]
            continue
        yield f"[{name}]"
        for key in fields(section):
            value = getattr(section, key.name)
            if isinstance(value, dict) and any(map(is_dataclass, value.values())):
                tables.append((f"{name}.{key.name}", value))
            else:
                yield f"{key.name} = {_shown(key.name, value, is_secret=not key.repr)}"
        yield ""


def _shown(key: str, value: Any, *, is_secret: bool) -> str:
    if key == "tokens":
        return f"{len(value)} configured"
    if is_secret:
        return "(set)" if value else "(empty)"
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else repr(value)
