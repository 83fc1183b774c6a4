"""What is answered to a request that PJSIP has dropped."""

import pytest

from cc_tts.ua.guard.dropped_messages import answer_to

pytestmark = pytest.mark.unit

INVITE = (
    "INVITE sip:say@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/TCP 192.0.2.9;branch=z9hG4bKa\r\n"
    "v: SIP/2.0/TCP 192.0.2.8;branch=z9hG4bKb\r\n"
    "f: <sip:a@b>;tag=1\r\nTo: <sip:say@192.0.2.1>\r\nCall-ID: c\r\nCSeq: 7 INVITE\r\nX-TTS-Text: aaaa"
)


def test_the_answer_repeats_what_it_must() -> None:
    lines = answer_to(INVITE, is_cut=True, server="cc-tts").decode().split("\r\n")
    assert lines[0] == "SIP/2.0 513 Message Too Large"
    assert [line for line in lines if line[0:1] in ("V", "v")] == [
        "Via: SIP/2.0/TCP 192.0.2.9;branch=z9hG4bKa",
        "v: SIP/2.0/TCP 192.0.2.8;branch=z9hG4bKb",
    ]
    assert {"f: <sip:a@b>;tag=1", "Call-ID: c", "CSeq: 7 INVITE", "Server: cc-tts", "Content-Length: 0"} <= set(lines)
    (to,) = [line for line in lines if line.startswith("To: ")]
    assert to.startswith("To: <sip:say@192.0.2.1>;tag=")
    assert len(to) > len("To: <sip:say@192.0.2.1>;tag=") + 8
    assert lines[-2:] == ["", ""]
    inside = INVITE.replace("say@192.0.2.1>\r\nCall", "say@192.0.2.1>;tag=ours\r\nCall")
    assert b"To: <sip:say@192.0.2.1>;tag=ours\r\n" in answer_to(inside, is_cut=True, server="")


@pytest.mark.parametrize(
    "head",
    [
        INVITE.replace("INVITE sip", "ACK sip").replace("7 INVITE", "7 ACK"),
        "SIP/2.0 200 OK" + INVITE.partition(" SIP/2.0")[2],
        INVITE.replace("Call-ID: c\r\n", ""),
        INVITE.replace("Via:", "X-A:").replace("v:", "X-B:"),
        INVITE.replace("CSeq: 7 INVITE\r\n", "CSeq: 7 INVITE\r\nCSeq: 8 INVITE\r\n"),
        INVITE.replace("Call-ID: c", "Call-ID: c\nX: y"),
        "GET / HTTP/1.1\r\nHost: x\r\n",
        "",
        "a" * 4000,
    ],
)
def test_what_is_no_request_or_lacks_a_header_gets_no_answer(head: str) -> None:
    assert answer_to(head, is_cut=True, server="") == b""


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (INVITE, "400 Content-Length is no number"),
        (INVITE + "\r\nContent-Length: -1", "400 Content-Length is no number"),
        (INVITE + "\r\nl: 5", "400 A header cannot be read"),
        (INVITE.replace("SIP/2.0\r\n", "SIP/3.0\r\n", 1), "505 Version Not Supported"),
    ],
)
def test_the_answer_says_what_cannot_be_read(head: str, status: str) -> None:
    assert answer_to(head, is_cut=False, server="").startswith(f"SIP/2.0 {status}\r\n".encode())
