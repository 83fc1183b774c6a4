"""What a reload of the server has done when one of its steps fails."""

import pytest

from cc_tts.api.http import auth
from cc_tts.config.schema import Config, HttpConfig, TokenConfig
from cc_tts.server import Server

pytestmark = pytest.mark.unit


async def test_a_token_is_revoked_although_prompts_or_voices_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def configured(token: str) -> Config:
        return Config(http=HttpConfig(port=0, tokens=(TokenConfig(token),)))

    server = Server(configured("the-token-that-leaked"), read_config=lambda: configured("the-token-after-it"))
    taken: list[str] = []
    monkeypatch.setattr(
        server.app[auth.AUTHENTICATOR], "set_tokens", lambda tokens: taken.extend(each.token for each in tokens)
    )

    async def fail() -> None:
        raise OSError("the disk")

    monkeypatch.setattr(server, "_load_prompts", fail)
    monkeypatch.setattr(server.source, "check_voices", lambda *_: [])
    with pytest.raises(OSError, match="the disk"):
        await server._reload()  # noqa: SLF001 - asked for by a signal, of a server that runs
    assert taken == ["the-token-after-it"]
