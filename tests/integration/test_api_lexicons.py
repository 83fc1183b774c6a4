"""Lexicons over HTTP, as JSON and as PLS."""

import pytest

from tests.fakes.running_api import RunningApi

pytestmark = pytest.mark.integration

PATH = "/v1/lexicons/crm"
JSON = {"language": "en", "entries": [{"grapheme": "Mobivox", "alias": "mo bee vox"}]}
PLS = (
    b'<lexicon xml:lang="en">'
    b"<lexeme><grapheme>Mobivox</grapheme><phoneme>\xcb\x88mo\xca\x8abi</phoneme></lexeme></lexicon>"
)


async def test_a_lexicon_is_put_read_listed_and_deleted(api: RunningApi) -> None:
    summary = {"name": "crm", "language": "en", "voices": [], "num_entries": 1}
    put = await api.ask("PUT", PATH, JSON)
    assert (put.status, put.json) == (201, summary)
    assert (await api.ask("PUT", PATH, JSON)).status == 200  # it was there (RFC 9110 §9.3.4)
    got = await api.ask("GET", PATH)
    assert got.json["entries"] == [
        {"grapheme": "Mobivox", "alias": "mo bee vox", "ipa": "", "case_sensitive": False, "whole_word": True}
    ]
    assert (await api.ask("GET", "/v1/lexicons")).json == {"lexicons": [summary]}
    assert (await api.ask("DELETE", PATH)).json == summary
    assert (await api.ask("GET", "/v1/lexicons")).json == {"lexicons": []}


async def put_pls(
    api: RunningApi, document: bytes, media_type: str = "application/pls+xml"
) -> tuple[int, dict[str, object]]:
    async with api.session.put(PATH, data=document, headers={"Content-Type": media_type}) as response:
        return response.status, await response.json(content_type=None)


async def test_a_lexicon_as_pls(api: RunningApi) -> None:
    status, summary = await put_pls(api, PLS)
    assert (status, summary["num_entries"]) == (201, 1)
    assert (await api.ask("GET", PATH)).json["entries"][0]["ipa"] == "ˈmoʊbi"


@pytest.mark.parametrize(
    ("document", "media_type", "status", "code"),
    [
        (b"<lexicon>", "application/pls+xml", 422, "lexicon_malformed"),
        (b"\xff", "application/pls+xml", 422, "lexicon_malformed"),
        (b"", "application/pls+xml", 400, "malformed"),
        (PLS, "application/json", 400, "malformed"),
        (PLS, "text/xml", 415, "unsupported_media_type"),
        (b"x" * 300_000, "application/pls+xml", 413, "body_too_large"),
    ],
)
async def test_what_is_refused(api: RunningApi, document: bytes, media_type: str, status: int, code: str) -> None:
    got, problem = await put_pls(api, document, media_type)
    assert (got, problem["code"]) == (status, code)


async def test_it_is_used_by_name(api: RunningApi) -> None:
    await api.ask("PUT", PATH, JSON)
    body = {"input": "Mobivox", "response_format": "pcm", "lexicons": ["crm"]}
    assert (await api.ask("POST", "/v1/audio/speech", body)).status == 200
    assert api.registry.source.opened[0].lexicons == ("crm",)  # type: ignore[union-attr]
