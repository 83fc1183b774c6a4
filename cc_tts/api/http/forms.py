"""Forms as browsers and ``curl`` send them: multipart/form-data with files (RFC 7578), URL-encoded without."""

from email.message import Message
from email.parser import BytesHeaderParser
from typing import Final
from urllib.parse import parse_qsl

from cc_tts.api.http.bodies import pointer_to
from cc_tts.errors import FieldError, MalformedRequest

MULTIPART: Final = "multipart/form-data"
URLENCODED: Final = "application/x-www-form-urlencoded"
_MAX_PARTS: Final = 16  # unmeasured


def fields_of(body: bytes, content_type: str) -> dict[str, bytes]:
    """Return the values of a form by field name.

    Raises:
        MalformedRequest: it is no form, has too many fields, or one of them twice.
    """
    header = Message()
    header["Content-Type"] = content_type
    boundary = header.get_boundary("")
    if not boundary:
        raise MalformedRequest("multipart/form-data without a boundary")
    first, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"), _MAX_PARTS + 2)
    if not parts or not parts[-1].startswith(b"--"):
        raise MalformedRequest("a form that is cut off" if parts else "a form without its boundary")
    if len(parts) > _MAX_PARTS:
        raise MalformedRequest(f"a form of more than {_MAX_PARTS} fields")
    del first  # what stands before the first boundary is no part of the form (RFC 2046 §5.1.1)
    found: dict[str, bytes] = {}
    for part in parts[:-1]:
        head, _, value = part.partition(b"\r\n\r\n")
        name = BytesHeaderParser().parsebytes(head.lstrip()).get_param("name", header="content-disposition")
        if not isinstance(name, str) or name in found:
            raise MalformedRequest("each field of a form has a name of its own")
        found[name] = value
    return found


def urlencoded_fields_of(body: bytes) -> dict[str, bytes]:
    """Return the values of a form without files; raises as :func:`fields_of`."""
    try:
        pairs = parse_qsl(body.decode("latin-1"), keep_blank_values=True, encoding="latin-1", max_num_fields=_MAX_PARTS)
    except ValueError:
        raise MalformedRequest(f"a form of more than {_MAX_PARTS} fields") from None
    found = {name: value.encode("latin-1") for name, value in pairs}
    if len(found) < len(pairs):
        raise MalformedRequest("each field of a form has a name of its own")
    return found


def text_of(name: str, value: bytes) -> str:
    """Return the value of a text field; raises ``MalformedRequest`` if it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MalformedRequest.about(FieldError(pointer_to(name), "this is not in UTF-8")) from None
