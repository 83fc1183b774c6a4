"""The choice of pjsua2 for this process: the PyPI wheel, or the server build of ``cc-tts pjsua2 build``.

``CC_TTS_PJSUA2`` is ``wheel``, ``server``, or the folder of a build elsewhere. Without it the installed wheel is used, or
the server build where PyPI has no wheel for this Python and machine. The ``build.json`` of a server build says what it was
built from and for how many calls (``sip/pjproject/build.sh``). This module never imports pjsua2.
"""

import importlib.util
import ipaddress
import os
import sys
from collections.abc import Callable, Mapping, MutableSequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from cc_tts.errors import UNREADABLE, ConfigError

VARIABLE: Final = "CC_TTS_PJSUA2"
FOLDER: Final = "pjsua2-server"
"""``cc-tts pjsua2 build`` writes this folder in the virtual environment."""
PYPI_WHEEL: Final = "PyPI wheel"
WHEEL_MAX_CALLS: Final = 4
WHEEL_MAX_HANDLES: Final = 64
"""The PyPI wheel was compiled with these: PJSUA_MAX_CALLS and PJ_IOQUEUE_MAX_HANDLES."""
WHEEL_MAX_MESSAGE_BYTES: Final = 4_000
"""This is ``PJSIP_MAX_PKT_LEN``, as PJSIP has it."""
BUILD: Final = "cc-tts pjsua2 build"
START_SERVER_BUILD: Final = f"start with {VARIABLE}=server"
NO_TLS: Final = (
    'sip.transports has "tls", but the PyPI wheel of pjsua2 brings OpenSSL 1.0.2, without security fixes since 2019; '
    f'{BUILD}, then {START_SERVER_BUILD}, or take "tls" out'
)
_INSIDE: Final = tuple(
    ipaddress.ip_network(network)
    for network in ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16")
)
"""These are loopback, private and link-local addresses (RFC 1918, RFC 3927)."""
_MAX_DESCRIPTION_BYTES: Final = 65_536  # unmeasured


class _Description(msgspec.Struct):
    """The fields that ``build.json`` must have."""

    pjproject: str
    max_calls: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    max_ioqueue_handles: Annotated[int, msgspec.Meta(ge=16, le=1_000_000)]
    max_message_bytes: Annotated[int, msgspec.Meta(ge=4_000, le=65_535)] = 16_000
    """Builds that do not say it had this."""


@dataclass(frozen=True, slots=True)
class Pjsua2Build:
    """A build of pjsua2: its folder, ``None`` for an installed wheel, how many sockets its poller holds, and how long a SIP
    message may be.
    """

    folder: Path | None = None
    max_handles: int = WHEEL_MAX_HANDLES
    max_message_bytes: int = WHEEL_MAX_MESSAGE_BYTES

    def name(self, max_calls: int) -> str:
        """Return what it is, for people; ``max_calls`` is what the library itself says it takes."""
        if self.folder is not None:
            return "server build"
        return PYPI_WHEEL if max_calls <= WHEEL_MAX_CALLS else "installed build"


def is_built(prefix: str = sys.prefix) -> bool:
    """Whether ``cc-tts pjsua2 build`` has been run in this virtual environment."""
    return (Path(prefix) / FOLDER / "build.json").is_file()


def has_wheel() -> bool:
    """Whether ``import pjsua2`` finds a module without our help."""
    return importlib.util.find_spec("pjsua2") is not None


def chosen(
    environ: Mapping[str, str] = os.environ, prefix: str = sys.prefix, *, has_wheel: Callable[[], bool] = has_wheel
) -> Pjsua2Build:
    """Return the build that the environment asks for. Raises ``ConfigError`` if it is missing or its ``build.json``
    malformed.
    """
    wanted = environ.get(VARIABLE, "").strip()
    if not wanted and not has_wheel() and is_built(prefix):
        wanted = "server"
    if wanted in ("", "wheel"):
        if not has_wheel():
            raise ConfigError(f"there is no pjsua2, and PyPI has none for this Python and machine: `{BUILD}` makes one")
        return Pjsua2Build()
    if wanted != "server" and not Path(wanted).is_absolute():
        raise ConfigError(f"{VARIABLE} is wheel, server or the absolute path of a build, not {wanted[:100]!r}")
    folder = Path(prefix) / FOLDER if wanted == "server" else Path(wanted)
    path = folder / "build.json"
    try:
        with path.open("rb") as file:
            description = msgspec.json.decode(file.read(_MAX_DESCRIPTION_BYTES), type=_Description)
    except OSError:
        raise ConfigError(
            f"{VARIABLE}={wanted[:100]}: there is no server build of pjsua2 in {folder}; `{BUILD}` makes it"
        ) from None
    except UNREADABLE as error:
        raise ConfigError(f"{path}: {error}; `{BUILD}` makes it again") from None
    return Pjsua2Build(folder, description.max_ioqueue_handles, description.max_message_bytes)


def select(build: Pjsua2Build, path: MutableSequence[str] = sys.path) -> None:
    """Have ``import pjsua2`` import ``build``. Raises ``ConfigError`` if another pjsua2 is imported already."""
    if build.folder is not None and "pjsua2" in sys.modules:
        raise ConfigError("pjsua2 was imported before its build was chosen")
    if build.folder is not None and path[:1] != [str(build.folder)]:
        path.insert(0, str(build.folder))


def check_address(host: str) -> None:
    """Raise ``ConfigError`` for a host that is neither loopback nor private: an assertion of the wheel ends all calls.

    That of every interface is none either, whichever the machine has by now.
    """
    if any(ipaddress.ip_address(host) in network for network in _INSIDE):
        return
    raise ConfigError(
        f"sip.host is {host}, but this pjsua2 is the PyPI wheel. One unexpected packet can end it with all calls, so it "
        f"listens on loopback and private addresses only; for others: {BUILD}, then {START_SERVER_BUILD}. "
        "sip.allow_pypi_wheel = true lets it listen nonetheless"
    )


def how_to_lift_limits(prefix: str = sys.prefix) -> str:
    return START_SERVER_BUILD if is_built(prefix) else f"`{BUILD}` makes one for more, then {START_SERVER_BUILD}"


def advice(*, max_calls: int, prefix: str = sys.prefix) -> str:
    limits = f"{max_calls} calls at once, and RTP follows whoever sends it"
    return f"this pjsua2 is the PyPI wheel: {limits}. To lift the limits: {how_to_lift_limits(prefix)}"
