"""Counts the rules of texts as they are compiled. A process imports it before it compiles any."""

import re
from typing import Any

from cc_tts.text import substitution

compiled: list[str] = []


class _Counting:
    def compile(self, pattern: str) -> re.Pattern[str]:
        compiled.append(pattern)
        return re.compile(pattern)

    def __getattr__(self, name: str) -> Any:
        return getattr(re, name)


_module: Any = substitution
_module.re = _Counting()
