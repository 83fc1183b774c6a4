"""Request bodies: bounded in size and time, JSON only, decoded into one of the structs of ``schemas.py``. Also JSON
responses.

400 is for what is not JSON or not of the right shape (type, missing or unknown field), 422 for the right shape with a
value out of bounds. The fault is named by a JSON pointer (RFC 6901).
"""

import asyncio
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
from aiohttp import HttpVersion11, web
from aiohttp.web_protocol import RequestPayloadError

from cc_tts.api.http.problems import ExpectationFailed, RequestTimeout
from cc_tts.config.wording import MAX_SHOWN_CHARS, check_keys, fields, in_words, none_of, types_at
from cc_tts.errors import (
    UNREADABLE,
    BodyTooLarge,
    ClientError,
    FieldError,
    MalformedRequest,
    Unprocessable,
    UnsupportedMediaType,
    did_you_mean,
)

JSON: Final = "application/json"

_HALF_OF_CHARACTER: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""An unpaired surrogate, which JSON can write and UTF-8 cannot (RFC 8259 §8.2). The alternatives before it match escaped
backslashes and surrogate pairs.
"""

T = TypeVar("T")

_AT: Final = re.compile(r"(?P<what>.*) - at `(?:key` in `)?(?P<path>\$[^`]*)`+", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|(\[\.\.\.\])")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_INVALID_TAG: Final = re.compile(r"Invalid value (.*)", re.DOTALL)
_WRONG_TYPE: Final = re.compile(r"Expected `[^`]*`, got ")


async def read(
    request: web.Request,
    *,
    max_bytes: int,
    timeout_s: float,
    other_types: Iterable[str] = (),
    key: str = "http.max_body_bytes",
) -> bytes:
    """Return the body, empty if there is none. ``key`` is the configuration key that sets ``max_bytes``.

    Raises:
        UnsupportedMediaType: it is neither JSON nor of ``other_types``, not in UTF-8, or compressed.
        BodyTooLarge: more than ``max_bytes`` bytes, announced or sent.
        RequestTimeout: it did not arrive within ``timeout_s``.
        MalformedRequest: it broke off.
    """
    if not request.body_exists:
        return b""
    _check_media_type(request, other_types)
    if request.content_length is not None and request.content_length > max_bytes:
        raise BodyTooLarge(f"{request.content_length} bytes; {key} is {max_bytes}")
    await _invite(request)
    try:
        async with asyncio.timeout(timeout_s):
            body = await _bounded(request, max_bytes, key)
    except TimeoutError:
        raise RequestTimeout(f"the body did not arrive within {timeout_s:g} s") from None
    except (RequestPayloadError, aiohttp.ClientError, ConnectionError):
        raise MalformedRequest("the body broke off") from None
    return body


async def _bounded(request: web.Request, max_bytes: int, key: str) -> bytes:
    parts, num_bytes = [], 0
    async for part, _ in request.content.iter_chunks():
        num_bytes += len(part)
        if num_bytes > max_bytes:
            raise BodyTooLarge(f"{key} is {max_bytes}")
        parts.append(part)
    return b"".join(parts)


def decode(body: bytes, kind: type[T]) -> T:
    """Decode JSON as a ``kind``.

    Raises:
        MalformedRequest: not JSON, not UTF-8, of the wrong shape, or a key comes twice.
        Unprocessable: a value is out of its bounds.
    """
    if not body:
        raise MalformedRequest("a body is needed")
    try:
        decoded: T = parsed(body, kind)
    except UNREADABLE as error:
        raise explained(error, kind) from None
    return decoded


def parsed(encoded: bytes | str, kind: Any) -> Any:
    """Return JSON as a ``kind``, with U+FFFD for each unpaired surrogate.

    Raises:
        MalformedRequest: a key comes twice.
        The errors in :data:`UNREADABLE`: it is not JSON, or not of the right shape.
    """
    data = encoded.encode() if isinstance(encoded, str) else encoded
    value = _decoder_of(kind).decode(_mended(data))
    check_keys(encoded)
    return value


@functools.cache
def _decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def explained(error: Exception, kind: Any) -> ClientError:
    """Return the error for a client whose JSON raised one of :data:`UNREADABLE` when it was decoded as a ``kind``."""
    match error:
        case msgspec.ValidationError():
            return _explained(str(error), kind)
        case UnicodeError():
            return MalformedRequest("the body is not UTF-8")
        case RecursionError():
            return MalformedRequest("not JSON that can be read: nested too deeply")
    detail = str(error).removeprefix("JSON is malformed: ")
    return MalformedRequest(f"not JSON: {in_words(detail)}")


def shaped(value: object, kind: type[T]) -> T:
    """Convert a value that did not come as JSON into a ``kind``; raises as :func:`decode`."""
    try:
        return msgspec.convert(value, kind, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise _explained(str(error), kind) from None


def _mended(encoded: bytes) -> bytes:
    """Return JSON with U+FFFD for each unpaired surrogate; JavaScript leaves these when it cuts a string."""
    return _HALF_OF_CHARACTER.sub(_whole, encoded) if b"\\u" in encoded else encoded


def _whole(match: re.Match[bytes]) -> bytes:
    """Return U+FFFD for an unpaired surrogate."""
    return rb"\ufffd" if match["half"] else match.group()


def response(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, headers=headers, content_type=JSON)


@contextmanager
def located(pointers: Mapping[Any, str]) -> Iterator[None]:
    """Add a field to an error raised inside: the pointer of its class in ``pointers``, unless it names a field already."""
    try:
        yield
    except ClientError as error:
        pointer = pointers.get(type(error))
        if pointer is not None and not error.field_errors:
            error.field_errors = (FieldError(pointer, error.detail),)
        raise


def pointer_to(*names: str) -> str:
    """Return a JSON pointer (RFC 6901 §3: ``~`` and ``/`` are escaped)."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)


def _check_media_type(request: web.Request, other_types: Iterable[str]) -> None:
    known = (JSON, *other_types)
    if request.headers.get("Content-Type") is None or request.content_type not in known:
        raise UnsupportedMediaType(f"send the body with Content-Type: {' or '.join(known)}")
    if (request.charset or "utf-8").lower() not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaType("bodies are UTF-8 (JSON: RFC 8259 §8.1)")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("a compressed body is not taken")


async def _invite(request: web.Request) -> None:
    """Answer ``Expect: 100-continue`` now that the body is wanted (RFC 9110 §10.1.1)."""
    expected = request.headers.get("Expect", "").lower()
    if not expected or request.version < HttpVersion11:
        return
    if expected != "100-continue":
        raise ExpectationFailed("only 100-continue can be expected")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # aiohttp counts from here whether a response has begun


def _explained(message: str, kind: Any) -> ClientError:
    located_at = _AT.fullmatch(message)
    what, names = (located_at["what"], _names(located_at["path"])) if located_at else (message, [])
    if unknown := _UNKNOWN.fullmatch(what):
        known = [name for each in types_at(kind, names) for name in fields(each)]
        hint = did_you_mean(unknown[1], known) or f"; known here: {', '.join(known) or 'none'}"
        return MalformedRequest.about(FieldError(pointer_to(*names, unknown[1]), f"unknown field{hint}"))
    if missing := _MISSING.fullmatch(what):
        return MalformedRequest.about(FieldError(pointer_to(*names, missing[1]), "this field is needed"))
    if _WRONG_TYPE.match(what):
        return MalformedRequest.about(FieldError(pointer_to(*names), in_words(what)))
    if (tag := _INVALID_TAG.fullmatch(what)) and (known := _tags(types_at(kind, names[:-1]))):
        sent = tag[1][:MAX_SHOWN_CHARS]
        return Unprocessable.about(FieldError(pointer_to(*names), f"{sent} is not one of {', '.join(known)}"))
    detail = none_of(what, types_at(kind, names)) or in_words(what)
    return Unprocessable.about(FieldError(pointer_to(*names), detail))


def _tags(kinds: Iterable[Any]) -> list[str]:
    """Return the tag values of the structs of a union."""
    tags = (getattr(each, "__struct_config__", None) for each in kinds)
    return [str(tag.tag) for tag in tags if tag is not None and tag.tag is not None]


def _names(path: str) -> list[str]:
    """Split a path: ``$.x[0].y`` gives x, 0, y. A key that msgspec does not name (``[...]``) ends it."""
    names: list[str] = []
    for name, index, unnamed in _STEP.findall(path):
        if unnamed:
            break
        names.append(name or index)
    return names
