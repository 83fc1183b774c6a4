"""The process that a host of the pool starts: `cc-tts worker` with its configuration as JSON on standard input. It ends
with its host.
"""

import ctypes
import os
import signal
import sys
from typing import Final

import msgspec

from cc_tts.config.schema import Config
from cc_tts.engines.remote import host
from cc_tts.errors import CcTtsError

PR_SET_PDEATHSIG: Final = 1
SAYS_WHY: Final = "cc-tts: "
"""The prefix of the line that gives the reason for an exit; other lines are log lines."""


class WorkerStart(msgspec.Struct, frozen=True, kw_only=True):
    """``listen``, ``generation``: as of ``cc-tts worker``. ``parent``: process id of the host."""

    config: Config
    listen: str
    generation: str = ""
    parent: int


def main() -> int:
    """Serve until SIGTERM, or until the host is gone; return the exit status."""
    start = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerStart)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != start.parent:
        return 1
    try:
        return host.run(start.config, start.listen, generation=start.generation)
    except CcTtsError as error:
        print(f"{SAYS_WHY}{error.detail}", file=sys.stderr)  # noqa: T201 - for the host
        return 1


if __name__ == "__main__":
    sys.exit(main())
