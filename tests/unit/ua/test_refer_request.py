"""A REFER of the far side: whom it names, and what of it goes into the new call."""

import pytest

from cc_tts.ua.refer.request import MAX_HEADERS, refer_request

pytestmark = pytest.mark.unit


def refer(*lines: str) -> str:
    return "\r\n".join(("REFER sip:a@b SIP/2.0", "CSeq: 9 REFER", *lines, "", ""))


@pytest.mark.parametrize(
    ("line", "to", "headers"),
    [
        ("Refer-To: <sip:1@pbx>", "sip:1@pbx", {}),
        ("r: sip:1@pbx;x=y", "sip:1@pbx", {}),
        ('Refer-To: "A <b>, c" <sips:1@pbx:5061;transport=tls>;x=y', "sips:1@pbx:5061;transport=tls", {}),
        ("Refer-To: <sip:1@pbx;method=INVITE>", "sip:1@pbx", {}),
        ("Refer-To: <sip:1@pbx?X-A=b%20c&User-to-User=12>", "sip:1@pbx", {"X-A": "b c", "User-to-User": "12"}),
        (
            "Refer-To: <sip:1@pbx?Replaces=c%40d%3Bto-tag%3Dx%3Bfrom-tag%3Dy%3Bearly-only>",
            "sip:1@pbx",
            {"Replaces": "c@d;to-tag=x;from-tag=y;early-only"},
        ),
        ("Refer-To: <sip:1@pbx?Route=%3Csip:evil%3E&From=x&body=y&Contact=z&Replac=1>", "sip:1@pbx", {}),
        ("Refer-To: <sip:1@pbx?X-A=a%0d%0aRoute:%20x&X-B=%00>", "sip:1@pbx", {}),
        ("Refer-To: <sip:1@pbx?X-A=" + "a" * 1025 + ">", "sip:1@pbx", {}),
    ],
)
def test_whom_to_call_and_with_which_headers(line: str, to: str, headers: dict[str, str]) -> None:
    request = refer_request(refer(line), "call_1")
    assert (request.to, request.headers, request.call_id) == (to, headers, "call_1")


def test_headers_are_bounded() -> None:
    many = "&".join(f"X-{number}=1" for number in range(99))
    assert len(refer_request(refer(f"Refer-To: <sip:1@pbx?{many}>"), "call_1").headers) == MAX_HEADERS


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Refer-To: <sip:1@pbx>", "Refer-To: <sip:2@pbx>"),
        ("Refer-To: <tel:+1900>",),
        ("Refer-To: <http://pbx/>",),
        ("Refer-To: ",),
        ("Refer-To: <sip:1 2@pbx>",),
        ("Refer-To: <sip:1@pbx?Replaces=c%40d>",),
        ("Refer-To: <sip:1@pbx?Replaces=c%20d%3Bto-tag%3Dx%3Bfrom-tag%3Dy>",),
        ("Refer-To: <sip:1@" + "p" * 600 + ">",),
    ],
)
def test_what_names_nobody(lines: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"Refer-To|Replaces"):
        refer_request(refer(*lines), "call_1")


@pytest.mark.parametrize(
    ("line", "uri"),
    [
        ("Referred-By: <sip:boss@pbx>;cid=1", "sip:boss@pbx"),
        ('b: "Boss" <sip:boss@pbx>', "sip:boss@pbx"),
        ("Referred-By: <sip:b oss@pbx>", ""),
        ("Referred-By: <sip:boss@pbx?X=y>", ""),
        ("X: y", ""),
    ],
)
def test_who_refers(line: str, uri: str) -> None:
    assert refer_request(refer("Refer-To: <sip:1@pbx>", line), "call_1").referred_by == uri
