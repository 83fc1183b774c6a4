"""A call that has nothing to disclose, for tests of its parts."""

from types import SimpleNamespace
from typing import Any, cast

from cc_tts.calls.prompts.disclosure import Disclosing
from cc_tts.calls.services import CallServices


def undisclosed(services: CallServices) -> Disclosing:
    return Disclosing(cast("Any", SimpleNamespace(disclosure=None, disclosed_at_s=None)), services, lambda _data: None)
