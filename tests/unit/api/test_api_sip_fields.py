"""URIs and headers from clients: nothing may be injected into SIP."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.api.sip_fields import header_faults
from cc_tts.config.sip_uri import uri_fault

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "uri",
    [
        "sip:1000@pbx",
        "sip:pbx.example.com",
        "SIP:bob@Example.COM",
        "sips:bob@example.com:5061",
        "sip:+4930123@10.0.0.1:5060;transport=tcp;lr",
        "sip:*98#@pbx",
        "sip:a%20b@pbx",
        "sip:bob@[2001:db8::1]:5060",
        "sip:user;phone-context=example@pbx;user=phone",
        "sip:bob@example.com.",
    ],
)
def test_usable_uris(uri: str) -> None:
    assert uri_fault(uri) is None


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "sip:",
        "sip:@host",
        "sip:bob@",
        "bob@host",
        "tel:+4930",
        "http://host",
        "sip:bob@host>",
        '"Bob" <sip:bob@host>',
        "sip:bob@host, sip:eve@host",
        "sip:bob@host\r\nVia: x",
        "sip:bob@host\n",
        "sip:bob\t@host",
        "sip:bob@host?Route=%3Csip:evil%3E",
        "sip:bob:secret@host",
        "sip:bob%00@host",
        "sip:bob%7f@host",
        "sip:bob@host;a=%0D%0A",
        "sip:bob%zz@host",
        "sip:bob@host:0",
        "sip:bob@host:65536",
        "sip:bob@ho st",
        "sip:bob@-host",
        "sip:böb@host",
        "sip:bob@host;" + "a" * 512,
        "sip:bob@" + "a" * 243,
        "sip:bob@host;maddr=" + "a" * 243,
        "sip:bob@host;%6Daddr=" + "a" * 243,
    ],
)
def test_unusable_uris(uri: str) -> None:
    assert uri_fault(uri)


@given(st.text(max_size=30), st.sampled_from('\r\n\0<>" \x7f\x1b\u2028'), st.text(max_size=30))
def test_no_uri_with_such_a_character_passes(before: str, character: str, after: str) -> None:
    assert uri_fault("sip:" + before + character + after)


@given(st.from_regex(r"X-[A-Za-z]{1,5}", fullmatch=True), st.text(max_size=50))
def test_only_printable_values_pass(name: str, value: str) -> None:
    passes = not header_faults({name: value})
    assert passes == all(" " <= character <= "~" for character in value)


def test_long_input_is_judged_quickly() -> None:
    assert uri_fault("sip:" + "a" * 500 + "\n")
    assert uri_fault("sip:" + ".-" * 250)
    assert uri_fault("sip:h" + ";a=b" * 120 + "\n")


def test_headers_that_may_be_set() -> None:
    headers = {"X-Account": "", "x-lower": ' a, b;c="d" ', "User-to-User": "00", "USER-TO-USER2": "1"}
    assert [fault.pointer for fault in header_faults(headers)] == ["/headers/USER-TO-USER2"]


@pytest.mark.parametrize(
    "name", ["", "X", "X-", "Via", "X A", "X-A:", "X-A\r", "X-Ä", "From", "Xx", "P-Asserted-Identity", "X-" + "a" * 63]
)
def test_names_that_may_not_be_set(name: str) -> None:
    assert len(header_faults({name: "1"})) == 1


def test_every_fault_is_named() -> None:
    faults = header_faults({"Via": "1", "X-A": "1", "X-B": "\r\n", "x-a": "2"})
    assert [fault.pointer for fault in faults] == ["/headers/Via", "/headers/X-B", "/headers/x-a"]


def test_number_and_size_are_bounded() -> None:
    assert not header_faults({f"X-{n}": "" for n in range(20)})
    assert header_faults({f"X-{n}": "" for n in range(21)})[0].pointer == "/headers"
    assert header_faults({f"X-{n}": "a" * 1000 for n in range(5)})[0].pointer == "/headers"
