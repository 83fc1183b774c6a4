"""``cc-tts config``: write the configuration files that come with cc-tts; name the files that a backup has to have. For
``cc-tts check-config``: the configuration in force.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from cc_tts.config.load import named_paths
from cc_tts.config.schema import Config

_MADE_AGAIN: Final = frozenset({"disk_dir", "model_dir", "model_file"})
"""Names of keys of paths that no backup needs: what is there is computed or fetched again."""


def add_config_commands(config: argparse.ArgumentParser, *, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Add the commands below ``cc-tts config``."""
    commands = config.add_subparsers(title="commands", required=True, metavar="COMMAND")
    init = commands.add_parser("init", help="cc_tts.toml with every key, an example for a GPU, alerts, a dashboard")
    init.add_argument("folder", type=Path, nargs="?", default=Path(), metavar="DIR", help="where to; this folder")
    init.add_argument("--force", action="store_true", help="overwrite files that are there")
    init.set_defaults(run=_init)
    files_help = "files and folders of a configuration that a backup has to have, one a line"
    commands.add_parser("files", parents=list(parents), help=files_help).set_defaults(run=_files)


def _init(options: argparse.Namespace, _config: Config) -> int:
    from cc_tts.config import shipped

    for path in shipped.write(options.folder, force=options.force):
        print(path)
    return 0


def _files(options: argparse.Namespace, config: Config) -> int:
    if options.config is not None:
        print(options.config.absolute())
    for key, path in kept(config):
        if path.exists():
            print(path)
        else:
            print(f"cc-tts: {key}: {path} is not there (yet)", file=sys.stderr)
    return 0


def kept(config: Config) -> Iterator[tuple[str, Path]]:
    """Yield every key of a configuration that names what is not made again, with its absolute path."""
    for key, path in named_paths(config):
        if key.rpartition(".")[2] not in _MADE_AGAIN:
            yield key, path


def in_force(config: Config) -> Iterator[str]:
    """Yield the lines of the configuration in force, every key with its value, but no secrets: each section, and each table
    with a name, such as a route.
    """
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
