"""The findings of checks, and the subject that they examine."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

from cc_tts.config.schema import Config
from cc_tts.doctor.probes import Probes

QUICK_S: Final = 5.0
"""Time limit of a check that reads files of the kernel, binds ports or stats files, s."""
CHILD_S: Final = 30.0
"""Time limit of a check that starts a Python of its own, s."""
TORCH_S: Final = 120.0
"""Time limit to import torch and ask the driver, s; from a cold disk the first import takes most of a minute
(unmeasured).
"""
DEEP_S: Final = 1800.0
"""Time limit to read and hash a model directory, s (unmeasured)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. ``advice`` says what to do; empty if there is nothing to do. ``detail`` may quote others (a
    command line, an error); its text has no control characters.
    """

    status: Literal["ok", "warn", "fail"]
    what: str
    detail: str
    advice: str = ""

    def __str__(self) -> str:
        line = f"{self.status:4}  {self.what:14}  {self.detail}"
        text = f"{line}  → {self.advice}" if self.advice else line
        return "".join(character if character.isprintable() else " " for character in text)


ok = functools.partial(Finding, "ok")
warn = functools.partial(Finding, "warn")
fail = functools.partial(Finding, "fail")


@dataclass(slots=True)
class Subject:
    """The subject of a check: the configuration, the file it came from, and the machine. ``deep`` includes checks that take
    minutes.
    """

    config: Config
    probes: Probes = field(default_factory=Probes)
    config_file: Path | None = None
    deep: bool = False
    build_max_calls: int | None = None
    """The calls that this build of pjsua2 allows. Its check, the first one, sets this. ``None``: unknown."""

    @property
    def num_calls(self) -> int:
        """The calls that the machine must carry: the smaller of ``sip.max_calls`` and the build's limit."""
        of_build = self.config.ua.processes * (self.build_max_calls or 0)
        return min((limit for limit in (self.config.sip.max_calls, of_build) if limit), default=1)


class Check(NamedTuple):
    """A check, and the time that it may take, s."""

    what: str
    function: Callable[[Subject], Iterable[Finding]]
    timeout_s: float = QUICK_S
