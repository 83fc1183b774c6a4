"""The one thread that may use pjsua2: it polls PJSIP and gets its callbacks, so that the user agent needs no lock."""

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec

from cc_tts import logs

P = ParamSpec("P")

log = logs.get(__name__)


class SipThread:
    """Remembers the thread that polls the library."""

    _ident: int | None = None

    @classmethod
    def enter(cls) -> None:
        cls._ident = threading.get_ident()

    @classmethod
    def check(cls) -> None:
        """Raise ``RuntimeError`` on another thread. Functions through which other modules use pjsua2 call this first."""
        if threading.get_ident() != cls._ident:
            raise RuntimeError(f"pjsua2 used on thread {threading.current_thread().name}")


def callback(function: Callable[P, None]) -> Callable[P, None]:
    """Wrap a pjsua2 callback: an exception must not travel into C++, where it ends the process."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception:
            log.exception("callback_failed", callback=function.__qualname__)

    return guarded


def pj_detail(error: Any) -> str:
    return str(getattr(error, "reason", "")) or str(error)
