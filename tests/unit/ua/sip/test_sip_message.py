"""Header values read from the text of a SIP request."""

import pytest

from cc_tts.ua.sip.message import (
    MAX_CONTACT_CHARS,
    MAX_CONTACTS,
    MAX_HEADERS,
    MAX_OPTION_TAGS,
    MAX_VALUE_CHARS,
    contacts,
    contradicting_headers,
    contradiction,
    dialog_of,
    dialog_of_response,
    extension_headers,
    header_values,
    identity_headers,
    option_tags,
    request_uri,
    required_extensions,
    retry_after_s,
    via_transport,
)

pytestmark = pytest.mark.unit


def invite(*lines: str, body: str = "") -> str:
    return "\r\n".join(("INVITE sip:hello@192.0.2.1 SIP/2.0", "Via: SIP/2.0/UDP 192.0.2.9", *lines, "", body))


@pytest.mark.parametrize(
    ("start_line", "uri"),
    [
        ("INVITE sip:hello@192.0.2.1 SIP/2.0", "sip:hello@192.0.2.1"),
        ("INVITE sip:annc@h;play=tts:A%20b SIP/2.0", "sip:annc@h;play=tts:A%20b"),
        ("SIP/2.0 200 OK", ""),
        ("INVITE sip:hello@192.0.2.1", ""),
        ("INVITE sip:a b@h SIP/2.0", ""),
        ("INVITE sip:a@h HTTP/1.1", ""),
        ("", ""),
    ],
)
def test_request_uri(start_line: str, uri: str) -> None:
    assert request_uri(start_line + "\r\nVia: x\r\n\r\n") == uri


@pytest.mark.parametrize(
    ("lines", "taken"),
    [
        (
            ("From: <sip:a@h>;tag=1", "X-TTS-Text: Hi%20there", "P-Asserted-Identity: <sip:a@h>", "User-to-User: 00"),
            {"X-TTS-Text": "Hi%20there", "User-to-User": "00"},
        ),
        (("x-tts-voice: de", "X-TTS-VOICE: fr", "USER-TO-USER: 1"), {"x-tts-voice": "de", "USER-TO-USER": "1"}),
        (("X-A: 1", "X-A: 2", "x-a: 3"), {"X-A": "1"}),
        (("X-A \t:  1 \t", "X-B:", "X-C:a:b"), {"X-A": "1", "X-B": "", "X-C": "a:b"}),
        (("X-Broken", "X-A: 1"), {"X-A": "1"}),
        (
            ("X-Note: one", " two  ", "\tthree", "   \t four", "X-Next: 4"),
            {"X-Note": "one two three four", "X-Next": "4"},
        ),
        (("Subject: one", " X-Not: a header", "X-Yes: 1"), {"X-Yes": "1"}),
    ],
    ids=["extensions", "case", "twice", "spaces", "no colon", "folds", "a fold of another"],
)
def test_which_extension_headers_are_taken(lines: tuple[str, ...], taken: dict[str, str]) -> None:
    assert extension_headers(invite(*lines, body="X-B: 2\r\n\r\nX-C: 3")) == taken


def test_extension_headers_are_bounded() -> None:
    assert extension_headers(invite("X-A: " + "a" * (MAX_VALUE_CHARS + 5)))["X-A"] == "a" * MAX_VALUE_CHARS
    found = extension_headers(invite(*(f"X-{number}: {number}" for number in range(MAX_HEADERS + 5))))
    assert len(found) == MAX_HEADERS
    assert found[f"X-{MAX_HEADERS - 1}"] == str(MAX_HEADERS - 1)


def test_many_headers_of_others_do_not_hide_the_prompt() -> None:
    others = (f"X-{number}: {number}" for number in range(MAX_HEADERS))
    assert extension_headers(invite(*others, "X-TTS-Text: Hi"))["X-TTS-Text"] == "Hi"


def test_headers_of_ours_that_contradict_each_other_are_named() -> None:
    lines = ("X-TTS-Text: one", "x-tts-text: two", "X-TTS-Voice: de", "X-TTS-Voice: de", "X-A: 1", "X-A: 2")
    assert contradicting_headers(invite(*lines)) == ("x-tts-text",)


@pytest.mark.parametrize("message", ["", "\r\n\r\n", "X", "\r\n \r\n", "INVITE"])
def test_odd_messages_have_no_headers(message: str) -> None:
    assert extension_headers(message) == {}


def test_every_value_of_a_header_is_found() -> None:
    message = invite("Authorization: a", "AUTHORIZATION :\tb", "X-Authorization: c", "authorization:", "d", body="f: g")
    assert header_values(message, "authorization") == ["a", "b", ""]
    assert header_values(message, "f") == []
    assert header_values("", "f") == []


def test_required_extensions_are_whatever_was_written() -> None:
    message = invite("Require: 100rel,  Timer ,", 'Require: a b, "c", d\x01', "REQUIRE : e", "Proxy-Require: f")
    assert required_extensions(message) == ["100rel", "timer", "a b", '"c"', "d\x01", "e"]
    assert required_extensions(invite("Require: " + "x" * 65)) == ["x" * 65]
    many = [f"x{number}" for number in range(MAX_OPTION_TAGS + 5)]
    assert required_extensions(invite("Require: " + ",".join(many))) == many


def test_option_tags_told_are_tokens_and_not_without_end() -> None:
    assert option_tags(["foo", "a b", '"c"', "d\x01", "x" * 65, "e"]) == "foo, e"
    assert option_tags([f"x{number}" for number in range(MAX_OPTION_TAGS + 5)]).count(",") == MAX_OPTION_TAGS - 1


@pytest.mark.parametrize(
    ("lines", "dialog"),
    [
        (("Call-ID: c", "To: <sip:a@b>;tag=1", "From: <sip:c@d>;tag=2"), ("c", "1", "2")),
        (("i: c", "t: sip:a@b;x=y ; TAG = 1", "f: <sip:c@d;tag=no>"), ("c", "1", "")),
        (("i: c", 't: ";tag=no <\\">" <sip:a@b>;tag=1;x', "f: sip:c@d"), ("c", "1", "")),
        (("i: c", "To: <sip:a@b>", "From: <sip:c@d>;tag=2"), None),
        (("i: c", "To: <sip:a@b;tag=no>", "From: <sip:c@d>;tag=2"), None),
        (("i: c", 'To: ";tag=1" <sip:a@b>', "f: sip:c@d"), None),
        (("To: <sip:a@b>;tag=1", "From: <sip:c@d>;tag=2"), None),
        (("i: c",), None),
    ],
)
def test_the_dialog_of_a_request(lines: tuple[str, ...], dialog: tuple[str, str, str] | None) -> None:
    assert dialog_of(invite(*lines)) == dialog


@pytest.mark.parametrize(
    ("via", "transport"),
    [
        ("Via: SIP/2.0/TLS h;branch=x", "tls"),
        ("v:SIP / 2.0 / UDP h", "udp"),
        ("VIA : SIP/2.0/TCP h\r\nVia: SIP/2.0/TLS h", "tcp"),
        ("Via: nonsense", ""),
        ("X-Via: SIP/2.0/TLS h", ""),
        ("", ""),
    ],
)
def test_the_transport_of_the_topmost_via(via: str, transport: str) -> None:
    assert via_transport(f"SIP/2.0 200 OK\r\n{via}\r\n\r\nVia: SIP/2.0/SCTP h\r\n") == transport


def test_an_unclosed_quote_takes_one_pass() -> None:
    """Tried at each of its quotes anew, this would take hours."""
    message = (
        f'INVITE sip:a@b SIP/2.0\r\nCall-ID: c\r\nTo: "{chr(92)}"'
        + (chr(92) + '"') * 500_000
        + ";tag=x\r\nFrom: <sip:x>\r\n\r\n"
    )
    assert dialog_of(message) is None


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (invite("CSeq: 1 INVITE"), ""),
        (invite("CSeq:  0009", "  INVITE"), ""),
        (invite("CSeq: 1 INVITE", "Content-Length: 3", body="abc"), ""),
        (invite("CSeq: 1 INVITE", "l: 2", body="abc"), ""),
        (invite("CSeq: 1 INVITE", "Content-Length: 2", body="\N{LATIN SMALL LETTER E WITH ACUTE}"), ""),
        (invite("CSeq: 1 INVITE", "Content-Length: 1", body="\udcff"), ""),
        (invite("CSeq: 1 INVITE", "Content-Length: -999"), ""),
        (invite("CSeq: 1 INVITE", "Content-Length: \N{SUPERSCRIPT TWO}"), ""),
        (invite("CSeq: 1 BYE"), "CSeq"),
        (invite("CSeq: 1 invite"), "CSeq"),
        (invite("CSeq: 1"), "CSeq"),
        (invite("CSeq: INVITE"), "CSeq"),
        (invite(), "CSeq"),
        (invite("CSeq: 1 INVITE", "Content-Length: 4", body="abc"), "Content-Length"),
        (invite("CSeq: 1 INVITE", "l: 1"), "Content-Length"),
        (invite("CSeq: 1 INVITE", "Content-Length: " + "9" * 5000, body="abc"), "Content-Length"),
    ],
)
def test_what_contradicts_itself(message: str, said: str) -> None:
    assert bool(contradiction(message)) is bool(said)
    assert said in contradiction(message)


def test_identities_are_lists_under_their_own_names() -> None:
    message = invite("P-ASSERTED-IDENTITY: <sip:a@b>", "p-asserted-identity: <tel:+1>", "Diversion: <sip:c>", "X-A: 1")
    assert identity_headers(message) == {"P-Asserted-Identity": "<sip:a@b>, <tel:+1>", "Diversion": "<sip:c>"}
    assert identity_headers(invite("History-Info:")) == {}
    long = identity_headers(invite(*("Diversion: " + "d" * 2000 for _ in range(100))))
    assert len(long["Diversion"]) == MAX_VALUE_CHARS


def test_contacts_of_a_redirection() -> None:
    message = (
        'SIP/2.0 302 Moved\r\nContact: "a, <b>" <sip:a@b;x=y?h=1>;q=0.5, sip:c@d;q=1\r\n'
        "m: <tel:+1>\r\nContact: *\r\n\r\nContact: <sip:no@body>"
    )
    assert contacts(message) == ["sip:a@b;x=y?h=1", "sip:c@d", "tel:+1"]
    many = "SIP/2.0 300 Many\r\n" + "Contact: <sip:a@b>, <" + "c" * 1000 + ">\r\n" * 1
    assert contacts(many) == ["sip:a@b", "c" * MAX_CONTACT_CHARS]
    assert len(contacts("SIP/2.0 300 Many\r\n" + "Contact: <sip:a@b>\r\n" * 50)) == MAX_CONTACTS
    assert contacts("") == []
    assert contacts("SIP/2.0 302 Moved\r\nContact: <>, <sip:a@b>\r\n") == ["sip:a@b"]


@pytest.mark.parametrize(
    ("to", "tag"),
    [
        ("To: <sip:x@y>;tag=theirs", "theirs"),
        ("t: <sip:x@y;tag=no>", ""),
        ("To: <sip:x@y>;tag=", ""),
        ("X: y", ""),
    ],
)
def test_the_dialog_of_a_response(to: str, tag: str) -> None:
    message = f"SIP/2.0 200 OK\r\nCall-ID: c\r\nFrom: <sip:a@b>;tag=ours\r\n{to}\r\n\r\n"
    assert dialog_of_response(message) == ("c", "ours", tag)


@pytest.mark.parametrize(
    ("value", "seconds"), [("5 (later)", 5), ("5;duration=60", 5), ("0", 0), ("soon", None), ("-1", None), ("", None)]
)
def test_retry_after(value: str, seconds: int | None) -> None:
    assert retry_after_s(f"SIP/2.0 503 Busy\r\nretry-after: {value}\r\n\r\n") == seconds
    assert retry_after_s(f"SIP/2.0 503 Busy\r\n\r\nRetry-After: {value}\r\n") is None
