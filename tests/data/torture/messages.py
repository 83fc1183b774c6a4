r"""The torture messages of RFC 4475, each made anew from what the RFC says is tortuous about it, under its name there.

The RFC's own messages go to hosts of its own; these come from and go to loopback: ``SERVER`` stands for the server's
address, ``CALLER`` for the sender's. A few values that are the point of a case (odd method names, URIs, header lines) are
the RFC's. Where a request is for a service, it is the user ``silent`` of the tests' server.

``allowed`` are the status codes a server may give; ``None`` among them: it may say nothing. Where PJSIP or we differ
from what the RFC recommends, ``remark`` says how and why that is right too, or harmless.
"""

from dataclasses import dataclass
from typing import Final

SDP: Final = "v=0\no=torture 1 1 IN IP4 127.0.0.1\ns=-\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 9 RTP/AVP 0\n"


@dataclass(frozen=True, slots=True)
class Torture:
    name: str
    section: str
    text: str
    allowed: frozenset[int | None]
    remark: str = ""

    def render(self, *, server: str, own: str) -> bytes:
        """As it goes out; ``server`` and ``own`` are HOST:PORT."""
        text = self.text.replace("SERVER", server).replace("CALLER", own).replace("CALL-ID", f"torture-{self.name}")
        return text.replace("\n", "\r\n").encode("latin-1")


def _request(start: str, *headers: str, body: str = "", via: str = "", without: tuple[str, ...] = ()) -> str:
    """An ordinary request with these start line and headers; a header given takes the place of the ordinary one."""
    method = start.split(" ", 1)[0]
    ordinary = [
        f"Via: {via or 'SIP/2.0/UDP CALLER;rport;branch=z9hG4bKCALL-ID'}",
        "Max-Forwards: 70",
        "From: <sip:caller@CALLER>;tag=torture",
        "To: <sip:silent@SERVER>",
        "Call-ID: CALL-ID",
        f"CSeq: 1 {method}",
        "Contact: <sip:caller@CALLER>",
    ]
    if body:
        ordinary += ["Content-Type: application/sdp", f"Content-Length: {len(body) + body.count(chr(10))}"]
    elif method != "ACK":
        ordinary.append("Content-Length: 0")
    given = {line.partition(":")[0].strip().lower() for line in headers} | {name.lower() for name in without}
    kept = [line for line in ordinary if line.partition(":")[0].lower() not in given]
    return "\n".join([start, *kept, *headers]) + "\n\n" + body


def _answer(start: str, *headers: str, via: str = "SIP/2.0/UDP CALLER;branch=z9hG4bKCALL-ID") -> str:
    """A response to a request that was never sent."""
    given = {line.partition(":")[0].strip().lower() for line in headers}
    ordinary = [
        f"Via: {via}", "From: <sip:caller@CALLER>;tag=torture", "To: <sip:silent@SERVER>;tag=1", "Call-ID: CALL-ID",
        "CSeq: 1 INVITE", "Content-Length: 0",
    ]  # fmt: skip
    return (
        "\n".join([start, *[line for line in ordinary if line.partition(":")[0].lower() not in given], *headers])
        + "\n\n"
    )


def _case(name: str, section: str, text: str, *allowed: int | None, remark: str = "") -> Torture:
    return Torture(name, section, text, frozenset(allowed), remark)


_INVITE: Final = "INVITE sip:silent@SERVER SIP/2.0"
_OPTIONS: Final = "OPTIONS sip:silent@SERVER SIP/2.0"
_REGISTER: Final = "REGISTER sip:SERVER SIP/2.0"
_NO_REGISTRAR: Final = "no registrar: 405 stands before everything else (RFC 3261 §8.2.1)"
_DROPPED: Final = "a response that belongs to no transaction is dropped"

_TORTUOUS: Final = (
    "INVITE sip:silent@SERVER;unknownparam SIP/2.0\n"
    "TO :\n sip:silent@SERVER ;   tag    = 1918181833n\n"
    'from   : "J Rosenberg \\\\\\""       <sip:caller@CALLER>\n  ;\n  tag = 98asjd8\n'
    "MaX-fOrWaRdS: 0068\n"
    "Call-ID: CALL-ID\n"
    "cseq: 0009\n  INVITE\n"
    "Via  : SIP  /   2.0\n /UDP\n    CALLER;rport;branch=z9hG4bKwsinv\n"
    "s :\n"
    "NewFangledHeader:   newfangled value\n continued newfangled value\n"
    "UnknownHeaderWithUnusualValue: ;;,,;;,;\n"
    "Content-Type: application/sdp\n"
    "Route:\n <sip:SERVER;lr;unknownwith=value;unknown-no-value>\n"
    "v:  SIP  / 2.0  / TCP     127.0.0.2   ;\n  branch  =   z9hG4bK9ikj8  ,\n"
    " SIP  /    2.0   / UDP  127.0.0.3   ; branch=\n z9hG4bK30239\n"
    'm:"Quoted string \\"\\"" <sip:caller@CALLER> ; newparam =\n      newvalue ;\n  secondparam ; q = 0.33\n\n' + SDP
)
_LONG: Final = _request(
    "INVITE sip:silent@SERVER SIP/2.0",
    'To: "I have a user name of ' + "extreme" * 15 + ' proportion"\n <sip:silent@SERVER:5060;unknownparam1=very'
    + "long" * 17 + "value;longparam" + "name" * 16 + "=shortvalue;very" + "long" * 20 + "ParameterNameWithNoValue>",
    "F: sip:\n amazinglylongcallername@CALLER\n;tag=12" + "982" * 50 + "424\n;unknownheaderparam" + "name" * 17 + "=unknown"
    + "value" * 18,
    "Call-ID: CALL-ID." + "really" * 20 + "longcallid",
    "Unknown-" + "Long" * 20 + "-Name: unknown-" + "long" * 20 + "-value; unknown-" + "long" * 20 + "-parameter-name=x",
    *[f"Via: SIP/2.0/TCP sip{number}.127.0.0.1" for number in range(33, 10, -1)],
    body=SDP,
    without=("From", "Max-Forwards"),
)  # fmt: skip

VALID: Final = (
    _case("wsinv", "3.1.1.1", _TORTUOUS, 481, 200,
    remark="To has a tag: without a dialog 481 is right (RFC 3261 §12.2.2)"),
    _case(
        "intmeth", "3.1.1.2",
        _request(
            "!interesting-Method0123456789_*+`.%indeed'~ "
            "sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:&it+has=1,weird!*pas$wo~d_too."
            "(doesn't-it)@SERVER SIP/2.0",
            "To: \"BEL:\x07 NUL:\\\x00 DEL:\x7f\" <sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*@SERVER>",
            "From: token1~` token2'+_ token3*%!.- <sip:mundane@CALLER>"
            ";fromParam''~+*_!.-%=\"\xd1\x80\xd0\xb0\";tag=_token~1'+`*%!-.",
            "extensionHeader-!.%*+_`'~: \xef\xbb\xbf\xe5\xa4\xa7\xe5\x81\x9c\xe9\x9b\xbb",
        ),
        405, 501, remark="a method that is not served",
    ),
    _case(
        "esc01", "3.1.1.3",
        _request(
            "INVITE sip:sil%65nt@SERVER SIP/2.0",
            "To: <sip:%75se%72@SERVER>", "From: <sip:I%20have%20spaces@CALLER>;tag=938",
            "Contact: <sip:cal%6Cer@CALLER;%6C%72;n%61me=v%61lue%25%34%31>", body=SDP,
        ),
        200,
    ),
    _case(
        "escnull", "3.1.1.4",
        _request(
            _REGISTER, "To: sip:null-%00-null@SERVER", "From: sip:null-%00-null@CALLER;tag=839923423",
            "Contact: <sip:%00@CALLER>", "Contact: <sip:%00%00@CALLER>",
        ),
        405, remark=_NO_REGISTRAR,
    ),
    _case("esc02", "3.1.1.5", _request("RE%47IST%45R sip:SERVER SIP/2.0", 'To: "%Z%45" <sip:x@SERVER>'), 405, 501,
          remark="not REGISTER: a method is not unescaped"),
    _case("lwsdisp", "3.1.1.6", _request(_OPTIONS, "From: caller<sip:caller@CALLER>;tag=323"), 200),
    _case("longreq", "3.1.1.7", _LONG, 200, None, 513, 400,
          remark="6 kB; PJSIP's default, 4000 bytes a packet, cuts it and drops it; the server build takes 16 kB"),
    _case(
        "dblreq", "3.1.1.8",
        _request(_OPTIONS) + _request(_INVITE, "Call-ID: the-second-message", body=SDP), 200,
        remark="what follows Content-Length in a datagram is dropped: the INVITE behind it must make no call",
    ),
    _case("semiuri", "3.1.1.9",
          _request("OPTIONS sip:silent;par=u%40example.net@SERVER SIP/2.0", "To: sip:j_user@SERVER"), 200),
    _case(
        "transports", "3.1.1.10",
        _request(
            _OPTIONS, "Via: SIP/2.0/UDP CALLER;rport;branch=z9hG4bKCALL-ID",
            "Via: SIP/2.0/SCTP t1.example.com;branch=z9hG4bKkdjuw",
            "Via: SIP/2.0/TLS t2.example.com;branch=z9hG4bK2", "Via: SIP/2.0/UNKNOWN t3.example.com;branch=z9hG4bK3",
            "Via: SIP/2.0/TCP t4.example.com;branch=z9hG4bK4",
        ),
        200,
    ),
    _case(
        "mpart01", "3.1.1.11",
        _request(
            "MESSAGE sip:silent@SERVER SIP/2.0", "Content-Type: multipart/mixed;boundary=7a9cbec02ceef655",
            "Content-Length: 173",
            body="--7a9cbec02ceef655\nContent-Type: text/plain\n\nHello\n--7a9cbec02ceef655\n"
            "Content-Type: application/octet-stream\nContent-Transfer-Encoding: binary\n\n0\x82\x01R\x06\x09\x00\x81\xff\n"
            "--7a9cbec02ceef655--",
        ),
        405, remark="MESSAGE is not served",
    ),
    _case("unreason", "3.1.1.12", _answer("SIP/2.0 200 = 2**3 * 5**2 \xd0\xbd\xd0\xbe \xd1\x81\xd1\x82\xd0\xbe"),
    None, remark=_DROPPED),
    _case("noreason", "3.1.1.13", _answer("SIP/2.0 100 "), None, remark=_DROPPED),
)  # fmt: skip

INVALID: Final = (
    _case(
        "badinv01", "3.1.2.1",
        _request(
            _INVITE, "From: <sip:caller@CALLER>;;,;,,;tag=torture", 'Contact: "Joe" <sip:caller@CALLER>;;;;',
            "Max-Forwards: 70", body=SDP,
            via="SIP/2.0/UDP CALLER;rport;;,;,,;branch=z9hG4bKCALL-ID",
        ),
        400, None, remark="PJSIP says nothing to a Via it cannot read",
    ),
    _case("clerr", "3.1.2.2", _request(_INVITE, "Content-Length: 9999", body=SDP), 400),
    _case("ncl", "3.1.2.3", _request(_INVITE, "Content-Length: -999", body=SDP), 400),
    _case(
        "scalar02", "3.1.2.4",
        _request(
            _REGISTER, "CSeq: 36893488147419103232 REGISTER", "Max-Forwards: 300", "Expires: 10" + "0" * 30,
            "Contact: <sip:caller@CALLER>;expires=280297596632815",
        ),
        400, 405, None, remark=_NO_REGISTRAR,
    ),
    _case("scalarlg", "3.1.2.5", _answer("SIP/2.0 503 Service Unavailable", "CSeq: 9292394834772304023312 OPTIONS",
                                        "Retry-After: 949302838503028349304023988"), None, remark=_DROPPED),
    _case("quotbal", "3.1.2.6", _request(_INVITE, 'To: "Mr. J. User <sip:silent@SERVER>', body=SDP), 400),
    _case("ltgtruri", "3.1.2.7", _request("INVITE <sip:silent@SERVER> SIP/2.0", body=SDP), 400, None, 416),
    _case("lwsruri", "3.1.2.8", _request("INVITE sip:silent@SERVER; lr=true SIP/2.0", body=SDP), 400, None),
    _case("lwsstart", "3.1.2.9", _request("INVITE  sip:silent@SERVER  SIP/2.0", body=SDP), 400, 200, None,
          remark="being lenient is allowed"),
    _case("trws", "3.1.2.10", _request("OPTIONS sip:silent@SERVER SIP/2.0  "), 400, 200, None,
    remark="being lenient is allowed"),
    _case("escruri", "3.1.2.11",
          _request("INVITE sip:silent@SERVER?Route=%3Csip:sip.example.com%3E SIP/2.0", body=SDP), 400, 200,
          remark="headers of a URI are ignored, as the RFC allows"),
    _case("baddate", "3.1.2.12", _request(_INVITE, "Date: Fri, 01 Jan 2010 16:00:00 EST", body=SDP), 400, 200,
          remark="nobody needs the date"),
    _case("regbadct", "3.1.2.13", _request(_REGISTER, "Contact: sip:caller@CALLER?Route=%3Csip:sip.example.com%3E"), 400,
    405, None),
    _case("badaspec", "3.1.2.14", _request(_OPTIONS, 'To: "Watson, Thomas" < sip:t.watson@SERVER >'), 400, 200, None,
          remark="being lenient is allowed"),
    _case("baddn", "3.1.2.15", _request(_OPTIONS, "From: Bell, Alexander <sip:a.g.bell@CALLER>;tag=43"), 400, 200, None,
          remark="being lenient is allowed"),
    _case("badvers", "3.1.2.16", _request("OPTIONS sip:silent@SERVER SIP/7.0",
    via="SIP/7.0/UDP CALLER;rport;branch=z9hG4bKCALL-ID"), 505, None,
          remark="PJSIP does not read what is not SIP/2.0"),
    _case("mismatch01", "3.1.2.17", _request(_OPTIONS, "CSeq: 8 INVITE"), 400),
    _case("mismatch02", "3.1.2.18", _request("NEWMETHOD sip:silent@SERVER SIP/2.0", "CSeq: 8 INVITE"), 400),
    _case("bigcode", "3.1.2.19", _answer("SIP/2.0 4294967301 better not break the receiver"), None, remark=_DROPPED),
)  # fmt: skip

TRANSACTION: Final = (
    _case("badbranch", "3.2.1", _request(_OPTIONS, via="SIP/2.0/UDP CALLER;rport;branch=z9hG4bK"), 200, 400, None,
          remark="the bare cookie is no identifier"),
)  # fmt: skip

APPLICATION: Final = (
    _case("insuf", "3.3.1", _request(_INVITE, body=SDP, without=("Call-ID", "From", "To")), 400, None,
          remark="a response needs what is missing; PJSIP stays silent"),
    _case("unkscm", "3.3.2", _request("OPTIONS nobodyKnowsThisScheme:totallyopaquecontent SIP/2.0"), 416, 200, None,
    400,
          remark="OPTIONS is answered for the server as a whole"),
    _case("novelsc", "3.3.3", _request("OPTIONS soap.beep://192.0.2.103:3002 SIP/2.0"), 416, 200, None, 400,
          remark="OPTIONS is answered for the server as a whole"),
    _case("unksm2", "3.3.4", _request(_REGISTER, "To: isbn:2983792873", "From: <http://www.example.com>;tag=3234233",
                                      "Contact: <name:John_Smith>"), 400, 405, None, remark=_NO_REGISTRAR),
    _case("bext01", "3.3.5", _request(_OPTIONS, "Require: nothingSupportsThis, nothingSupportsThisEither",
                                      "Proxy-Require: noProxiesSupportThis, norDoAnyProxiesSupportThis"), 420),
    _case("invut", "3.3.6", _request(_INVITE, "Content-Type: application/unknownformat",
    body="<audio>\n<pcmu port=9/>\n</audio>\n"), 415),
    _case("regaut01", "3.3.7", _request(_REGISTER, "Authorization: NoOneKnowsThisScheme opaque-data=here"), 401, 405, 400,
          remark="no registrar; PJSIP reads no scheme but Digest"),
    _case(
        "multi01", "3.3.8",
        _request(
            _INVITE, "CSeq: 5 INVITE", "CSeq: 59 INVITE", "Call-ID: CALL-ID", "Call-ID: CALL-ID-2", "Max-Forwards: 70",
            "Max-Forwards: 5", "From: <sip:caller@CALLER>;tag=3413415", "From: <sip:other@CALLER>;tag=2923420123",
            "To: <sip:silent@SERVER>", "To: <sip:other@SERVER>", "Content-Type: application/sdp", body=SDP,
        ),
        400, 200, None,
        remark="PJSIP takes one of each; the RFC says the behaviour is not specified, 400 is recommended",
    ),
    _case("mcl01", "3.3.9", _request(_OPTIONS, "Content-Length: 13",
    "Content-Length: 5") + "There's no way to know how many octets",
          400, 200, None, remark="PJSIP takes one of them; nothing in the body is read"),
    _case("bcast", "3.3.10", _answer("SIP/2.0 200 OK", via="SIP/2.0/UDP 127.255.255.255;branch=z9hG4bK1"), None,
    remark=_DROPPED),
    _case("zeromf", "3.3.11", _request(_OPTIONS, "Max-Forwards: 0"), 200),
    _case("cparam01", "3.3.12", _request(_REGISTER, "Contact: sip:+19725552222@CALLER;unknownparam"), 405,
    remark=_NO_REGISTRAR),
    _case("cparam02", "3.3.13", _request(_REGISTER, "Contact: <sip:+19725552222@CALLER;unknownparam>"), 405,
    remark=_NO_REGISTRAR),
    _case("regescrt", "3.3.14", _request(_REGISTER, "Contact: <sip:user@CALLER?Route=%3Csip:sip.example.com%3E>"), 405,
          remark=_NO_REGISTRAR),
    _case("sdp01", "3.3.15", _request(_INVITE, "Accept: text/nobodyKnowsThis", body=SDP), 406, 200,
          remark="PJSIP answers with SDP all the same, as the RFC says some will"),
)  # fmt: skip

BACKWARD: Final = (
    _case(
        "inv2543", "3.4.1",
        _request(_INVITE, "From: <sip:caller@CALLER>", "To: <sip:silent@SERVER>", body=SDP, via="SIP/2.0/UDP CALLER",
                 without=("Contact", "Max-Forwards")),
        200, 400, None, remark="RFC 3261 needs Contact in an INVITE",
    ),
)  # fmt: skip

ALL: Final = VALID + INVALID + TRANSACTION + APPLICATION + BACKWARD
