"""``cc-tts pjsua2 build``: compile the server build of pjsua2 from a checkout or from an installed wheel."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cc_tts.engines.cosyvoice.model.download import cache_folder
from cc_tts.errors import ConfigError
from cc_tts.ua.pjsua2_build import FOLDER, START_SERVER_BUILD, VARIABLE, has_wheel

_IN_WHEEL: Final = Path(__file__).parents[1] / "ua" / "pjproject"
_IN_SOURCE: Final = Path(__file__).parents[2] / "sip" / "pjproject"
_SCRIPT: Final = "build.sh"


def add_pjsua2_commands(pjsua2: argparse.ArgumentParser, *, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Add the commands below ``cc-tts pjsua2``."""
    commands = pjsua2.add_subparsers(title="commands", required=True, metavar="COMMAND")
    build = commands.add_parser(
        "build", parents=list(parents), help="compile pjsua2 for 2,000 calls: four minutes on two cores, on Linux"
    )
    folder_help = f"where to put it (default: {FOLDER} in this Python environment, where {VARIABLE}=server finds it)"
    build.add_argument("folder", nargs="?", type=Path, metavar="DIR", help=folder_help)
    build.set_defaults(run=_build)


def _build(options: argparse.Namespace, _config: object) -> int:
    """Run the recipe; its exit status is the command's: 3 if no source can be reached, 4 if packages are missing."""
    target = (options.folder or Path(sys.prefix) / FOLDER).absolute()
    recipe = _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_SOURCE
    bash = shutil.which("bash")
    if not sys.platform.startswith("linux") or bash is None or not (recipe / _SCRIPT).is_file():
        raise ConfigError("the server build of pjsua2 needs Linux, bash and the recipe that comes with cc-tts")
    environment = {"PYTHON": sys.executable, "PJPROJECT_WORK": str(_work_folder()), **os.environ}
    status = subprocess.run([bash, str(recipe / _SCRIPT), str(target)], env=environment, check=False).returncode  # noqa: S603
    if status == 0:
        print(_how_to_use(target))
    return status


def _work_folder() -> Path:
    """The folder for the source and the logs of the build; the source is fetched once."""
    return cache_folder() / "pjproject"


def _how_to_use(target: Path) -> str:
    if target != Path(sys.prefix) / FOLDER:
        return f"cc-tts uses it when started with {VARIABLE}={target}"
    return f"cc-tts uses it: {START_SERVER_BUILD}" if has_wheel() else "cc-tts uses it from now on"
