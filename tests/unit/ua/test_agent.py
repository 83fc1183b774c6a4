"""What legs and lines share: the commands of the server."""

from types import SimpleNamespace
from typing import Any

import pytest

from cc_tts.config import load as config
from cc_tts.processes.channel import Message
from cc_tts.ua import messages
from cc_tts.ua.client import settings_of
from cc_tts.ua.process.agent import Agent
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit


class FragileAgent(Agent[Any]):
    """An agent that fails with every command."""

    def __init__(self, sent: list[Message]) -> None:
        super().__init__(settings_of(config.load())[0], FakeClock(), sent.append)
        self._calls["a"] = SimpleNamespace(is_over=False)

    @property
    def num_calls(self) -> int:
        return 1

    def start(self) -> dict[str, str]:
        return {}

    def poll(self) -> None: ...

    def stop(self) -> None: ...

    def _detach(self, call: Any) -> None: ...

    def _execute(self, call: Any, message: messages.CallCommand) -> None:
        raise TypeError("wrong type")


def test_a_command_that_fails_ends_no_other_call() -> None:
    sent: list[Message] = []
    FragileAgent(sent).command(messages.Ring("a"))
    assert sent == [messages.CommandFailed("a", command="ring", detail="TypeError: wrong type")]
