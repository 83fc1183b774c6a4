"""``cc-tts completion SHELL``: a script that completes commands, options, ids of calls and names of files."""

import argparse
from collections.abc import Callable, Iterator
from typing import Final

SHELLS: Final = ("bash", "zsh", "fish")
_IDS: Final = "cc-tts calls --ids 2>/dev/null"
"""A CALL is completed by this: the configuration of the environment finds the server."""
_FILES: Final = frozenset({"FILE", "WAV", "PATH"})
_FOLDERS: Final = frozenset({"DIR", "FOLDER"})


def fill(command: argparse.ArgumentParser, run: Callable[..., int]) -> None:
    """Add the arguments of ``cc-tts completion``."""
    command.description = (
        'Print a completion script. bash: eval "$(cc-tts completion bash)". '
        'zsh: cc-tts completion zsh > "${fpath[1]}/_cc-tts". '
        "fish: cc-tts completion fish > ~/.config/fish/completions/cc-tts.fish."
    )
    command.add_argument("shell", choices=SHELLS, help="the shell that is to complete")
    command.set_defaults(run=run)


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a parser that has the arguments of every command.

    Raises:
        ConfigError: shtab is not installed.
    """
    try:
        import shtab
    except ImportError:
        from cc_tts.errors import ConfigError

        raise ConfigError("completion needs the package shtab: pip install shtab") from None

    ids = shtab.cmd(_IDS)
    for action in _actions(parser):
        if action.metavar == "CALL":
            action.complete = ids  # type: ignore[attr-defined]  # where shtab looks
        elif action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell=shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of the commands below it."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
