"""Decoding: what is malformed, what cannot be used, and where."""

from contextlib import suppress
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.api import calls, schemas
from cc_tts.api.http import bodies
from cc_tts.api.plugs.openai import AudioSpeech
from cc_tts.errors import ClientError, FieldError, MalformedRequest, NothingToSay, UnknownVoice, Unprocessable

pytestmark = pytest.mark.unit


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    y: Annotated[int, msgspec.Meta(ge=1)]


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    x: list[Inner] = []
    named: dict[str, int] = {}
    word: Literal["a", "b"] = "a"


def fault_of(body: bytes) -> ClientError:
    with pytest.raises(ClientError) as caught:
        bodies.decode(body, Outer)
    return caught.value


@pytest.mark.parametrize(
    "body", [b'{"word": "a", "word": "b"}', b'{"named": {"k": 1, "\\u006b": 1}}', b'{"x": [{"y": 1, "y": 1}]}']
)
def test_a_key_that_comes_twice_is_refused(body: bytes) -> None:
    error = fault_of(body)
    assert type(error) is MalformedRequest
    assert error.detail.endswith("comes twice")


@pytest.mark.parametrize(
    ("body", "kind", "pointer"),
    [
        (b'{"x": [{"y": 1}, {"y": "2"}]}', MalformedRequest, "/x/1/y"),
        (b'{"x": [{"y": 0}]}', Unprocessable, "/x/0/y"),
        (b'{"x": [{}]}', MalformedRequest, "/x/0/y"),
        (b'{"x": [{"y": 1, "z": 2}]}', MalformedRequest, "/x/0/z"),
        (b'{"x": 1}', MalformedRequest, "/x"),
        (b'{"named": {"k": "v"}}', MalformedRequest, "/named"),
        (b'{"word": "c"}', Unprocessable, "/word"),
        (b'{"word": 1}', MalformedRequest, "/word"),
        (b'{"": 1}', MalformedRequest, "/"),
        (b'{"~/": 1}', MalformedRequest, "/~0~1"),
        (b"7", MalformedRequest, ""),
    ],
)
def test_the_pointer_names_the_fault(body: bytes, kind: type[ClientError], pointer: str) -> None:
    error = fault_of(body)
    assert type(error) is kind
    assert [fault.pointer for fault in error.field_errors] == [pointer]
    assert "$" not in error.detail


@pytest.mark.parametrize(
    ("body", "kind", "detail"),
    [
        (b'{"txt": "hi"}', schemas.Speak, "/txt: unknown field, did you mean text?"),
        (b'{"to": "sip:x@h", "form": "sip:y@h"}', calls.Originate, "/form: unknown field, did you mean from?"),
        (b'{"barge_in": {"dtfm": true}}', schemas.Speak, "/barge_in/dtfm: unknown field, did you mean dtmf?"),
        (b'{"zzz": 1}', schemas.Ring, "/zzz: unknown field; known here: client_state, early_media"),
        (b'{"zzz": 1}', schemas.Empty, "/zzz: unknown field; known here: none"),
        (b'{"x": [{"yy": 1}]}', Outer, "/x/0/yy: unknown field, did you mean y?"),
        (
            b'{"queue": "repalce"}',
            schemas.Speak,
            "/queue: 'repalce' is not one of append, replace, did you mean replace?",
        ),
        (b'{"scope": "everything"}', schemas.Stop, "/scope: 'everything' is not one of current, all"),
        (
            b'{"input": "hi", "response_format": "mp4"}',
            AudioSpeech,
            "/response_format: 'mp4' is not one of mp3, opus, aac, flac, wav, pcm, ulaw, alaw, did you mean mp3?",
        ),
        (
            b'{"input": "hi", "sample_rate_hz": 8001}',
            AudioSpeech,
            "/sample_rate_hz: 8001 is not one of 8000, 16000, 22050, 24000, 44100, 48000, did you mean 8000?",
        ),
        (
            b'{"to": "sip:x@h", "speak": {"text": "hi", "queue": "x"}}',
            calls.Originate,
            "/speak/queue: 'x' is not one of append, replace",
        ),
    ],
)
def test_the_detail_names_what_would_be_right(body: bytes, kind: type, detail: str) -> None:
    with pytest.raises(ClientError) as caught:
        bodies.decode(body, kind)
    assert caught.value.detail == detail


def test_what_came_is_shown_in_bounds() -> None:
    error = fault_of(b'{"word": "' + b"x" * 100_000 + b'"}')
    assert len(error.detail) < 200


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'"\\udc00"', b"\xef\xbb\xbf{}", b"[" * 100_000])
def test_what_is_not_json_has_no_pointer(body: bytes) -> None:
    error = fault_of(body)
    assert type(error) is MalformedRequest
    assert error.detail


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    with suppress(MalformedRequest, Unprocessable):
        bodies.decode(body, Outer)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["x", "y", "named", "word", "other"]) | st.text(), inner)
        ),
        max_leaves=10,
    )
)
def test_any_json_is_decoded_or_refused_with_a_pointer(value: object) -> None:
    faults: tuple[FieldError, ...] = ()
    try:
        bodies.decode(msgspec.json.encode(value), Outer)
    except (MalformedRequest, Unprocessable) as error:
        faults = error.field_errors
    assert all(fault.pointer == "" or fault.pointer.startswith("/") for fault in faults)


def test_pointers_escape() -> None:
    assert bodies.pointer_to("a~b", "c/d", "0") == "/a~0b/c~1d/0"
    assert bodies.pointer_to() == ""


def test_located_adds_the_pointer_of_the_class_once() -> None:
    named = UnknownVoice(field_errors=[FieldError("/a", "b")])
    for error, faults in (
        (UnknownVoice("gone"), (FieldError("/voice", "gone"),)),
        (NothingToSay(), ()),
        (named, named.field_errors),
    ):
        with pytest.raises(type(error)) as caught, bodies.located({UnknownVoice: "/voice"}):
            raise error
        assert caught.value.field_errors == faults


def test_an_answer_is_json() -> None:
    response = bodies.response({"a": "ü"}, status=201, headers={"Location": "/x"})
    assert (response.status, response.content_type, response.body) == (201, "application/json", '{"a":"ü"}'.encode())
    assert response.headers["Location"] == "/x"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"Great \ud83d", "Great �"),
        (r"\uDE00 done", "� done"),
        (r"\ud83d\ude00 whole", "😀 whole"),
        (r"\\ud83d no escape", r"\ud83d no escape"),
        (r"\ud83d\ud83d\ude00", "�😀"),
    ],
)
def test_half_of_a_character_is_replaced(written: str, read: str) -> None:
    assert bodies.decode(f'{{"text": "{written}"}}'.encode(), dict[str, str]) == {"text": read}
