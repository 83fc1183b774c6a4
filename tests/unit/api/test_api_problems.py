"""Problem documents: form, headers, and that nothing breaks them."""

from typing import Any

import msgspec
import pytest
from aiohttp import web

from cc_tts.api.http import problems
from cc_tts.api.http.problems import Asked
from cc_tts.errors import (
    CcTtsError,
    ClientError,
    Draining,
    FieldError,
    QueueFull,
    ServerError,
    Unauthorized,
    WrongState,
)

pytestmark = pytest.mark.unit


def document(response: web.Response) -> Any:
    assert response.content_type == "application/problem+json"
    assert isinstance(response.body, bytes)
    return msgspec.json.decode(response.body)


def every_error(kind: type[CcTtsError] = CcTtsError) -> list[type[CcTtsError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in every_error(child))]


SHARED = [
    kind for kind in every_error(ServerError) + every_error(ClientError) if kind.__module__ == CcTtsError.__module__
]
"""Which of the others there are depends on what was imported before."""


@pytest.mark.parametrize("kind", SHARED)
def test_every_error_has_a_document(kind: type[CcTtsError]) -> None:
    response = problems.response_for(kind("because"), Asked("/v1/x"))
    assert document(response) == {
        "type": f"urn:cc-tts:problem:{kind.code}",
        "title": kind.title,
        "status": kind.http_status,
        "detail": "because",
        "instance": "/v1/x",
        "code": kind.code,
    }
    assert response.status == kind.http_status
    assert ("Retry-After" in response.headers) == (kind.http_status in (429, 503))


def test_codes_are_unique() -> None:
    """A kind without a code of its own is told as the one above it."""
    kinds = [
        kind for kind in every_error() if kind not in (CcTtsError, ServerError, ClientError) and "code" in vars(kind)
    ]
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_field_errors() -> None:
    error = WrongState("no", field_errors=[FieldError("/a", "b"), FieldError("", "c")])
    assert document(problems.response_for(error, Asked("/")))["errors"] == [
        {"pointer": "/a", "detail": "b"},
        {"pointer": "", "detail": "c"},
    ]


@pytest.mark.parametrize(
    ("error", "retry_after"),
    [(Draining(retry_after_s=30), "30"), (Draining(), "5"), (QueueFull(), "5"), (Unauthorized(), None)],
)
def test_retry_after(error: CcTtsError, retry_after: str | None) -> None:
    assert problems.response_for(error, Asked("/")).headers.get("Retry-After") == retry_after


def test_any_text_is_bounded_and_encodable() -> None:
    error = WrongState("\udcff" * 5000, field_errors=[FieldError("/\ud800", "x")])
    problem = document(problems.response_for(error, Asked("/" + "\udcfe" * 5000)))
    assert problem["detail"] == "?" * problems.MAX_DETAIL_CHARS
    assert len(problem["instance"]) == problems.MAX_INSTANCE_CHARS
    assert problem["errors"][0]["pointer"] == "/?"


def test_what_nobody_expected_says_nothing() -> None:
    problem = document(problems.internal_error(Asked("/x")))
    assert (problem["status"], problem["code"]) == (500, "internal")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (web.HTTPMethodNotAllowed("PUT", ["POST", "GET"]), 405, "method_not_allowed"),
        (web.HTTPExpectationFailed(), 417, "expectation_failed"),
        (web.HTTPBadRequest(), 400, "malformed"),
        (web.HTTPInternalServerError(), 500, "internal"),
    ],
)
def test_what_aiohttp_raises(error: web.HTTPException, status: int, code: str) -> None:
    response = problems.response_for_http(error, Asked("/x"), method="PUT")
    assert (response.status, document(response)["code"]) == (status, code)
    assert response.headers.get("Allow") == ("GET, POST" if status == 405 else None)
