"""The SIP server of MRCP: transactions and their timers in virtual time, Via, and what is refused."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from cc_tts.config.schema import SipConfig
from cc_tts.mrcp.sip import request as requests
from cc_tts.mrcp.sip.flows import Flow, SipListener, StreamFlow, UdpFlow
from cc_tts.mrcp.sip.request import SipRefusal
from cc_tts.mrcp.sip.server import Dialog, SipServer
from cc_tts.mrcp.tcp import Address
from tests.support.virtual_time import in_virtual_time, virtual_time

pytestmark = pytest.mark.unit

PEER = ("192.0.2.1", 5070)


class FakeFlow(UdpFlow):
    def __init__(self, transport: str = "UDP") -> None:
        super().__init__(cast("Any", None), PEER, "192.0.2.7")
        self.transport = transport
        self.is_reliable = transport != "UDP"
        self.sent: list[tuple[str, Address | None]] = []

    def send(self, data: bytes, to: Address | None = None) -> None:
        self.sent.append((data.decode(), to))

    def starts(self) -> list[str]:
        return [text.split("\r\n")[0] for text, _ in self.sent]


class FakeUsage:
    def __init__(self) -> None:
        self.ended: list[str] = []

    def modify(self, offer: str) -> str:
        if "refuse" in offer:
            raise SipRefusal(488)
        return "v=0\r\n"


class FakeUsages:
    def __init__(self) -> None:
        self.begun: list[FakeUsage] = []

    def begin(self, offer: str, dialog: Dialog) -> str:
        usage = FakeUsage()
        dialog.modify, dialog.ended = usage.modify, usage.ended.append
        answer = usage.modify(offer)
        self.begun.append(usage)
        return answer

    def capabilities(self, host: str) -> str:
        return f"v=0\r\nc=IN IP4 {host}\r\n"


class Bench:
    def __init__(self, transport: str = "UDP") -> None:
        self.flow = FakeFlow(transport)
        self.usages = FakeUsages()
        self.server = SipServer(
            SipConfig(),
            begin=self.usages.begin,
            capabilities=self.usages.capabilities,
            contact=lambda _flow: "<sip:192.0.2.7:8060>",
        )

    def receive(self, text: str) -> None:
        self.server.receive(text, self.flow)

    def tag(self) -> str:
        return self.flow.sent[-1][0].partition("\r\nTo: ")[2].partition("\r\n")[0].partition(";tag=")[2]


def message(
    method: str,
    *,
    cseq: int = 1,
    branch: str = "z9hG4bK1",
    tag: str = "",
    via: str = ";rport",
    body: str = "v=0\r\n",
    **changes: str,
) -> str:
    body = body if method == "INVITE" else ""
    headers = {
        "Via": f"SIP/2.0/UDP 192.0.2.1:5071;branch={branch}{via}",
        "From": "<sip:a@192.0.2.1>;tag=f",
        "To": "<sip:m@192.0.2.7>" + (f";tag={tag}" if tag else ""),
        "Call-ID": "c1",
        "CSeq": f"{cseq} {method}",
        "Contact": "<sip:a@192.0.2.1:5072>",
        **({"Content-Type": "application/sdp"} if body else {}),
        "Content-Length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    return (
        f"{method} sip:m@192.0.2.7 SIP/2.0\r\n"
        + "".join(f"{n}: {v}\r\n" for n, v in headers.items() if v)
        + f"\r\n{body}"
    )


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Bench]:
    yield Bench()


virtual = in_virtual_time(serving)


@virtual
async def test_an_offer_is_needed_to_begin_and_not_to_refresh(bench: Bench) -> None:
    bench.receive(message("INVITE", body=""))
    assert bench.flow.starts() == ["SIP/2.0 488 An offer is needed"]
    bench.receive(message("INVITE", branch="z9hG4bK2"))
    tag = bench.tag()
    bench.receive(message("ACK", tag=tag, branch="z9hG4bK3"))
    bench.flow.sent.clear()
    bench.receive(message("INVITE", cseq=2, tag=tag, branch="z9hG4bK4", body=""))
    refreshed, _ = bench.flow.sent[-1]
    assert bench.flow.starts() == ["SIP/2.0 200 OK"]
    assert refreshed.endswith("\r\n\r\nv=0\r\n")
    bench.receive(message("ACK", cseq=2, tag=tag, branch="z9hG4bK5"))
    assert not bench.usages.begun[0].ended


@virtual
async def test_a_200_is_sent_again_until_its_ack_comes(bench: Bench) -> None:
    bench.receive(message("INVITE"))
    await asyncio.sleep(3.6)  # 0.5, 1.5 and 3.5 s after it
    assert bench.flow.starts() == ["SIP/2.0 200 OK"] * 4
    bench.receive(message("ACK", branch="z9hG4bK2", tag=bench.tag()))
    await asyncio.sleep(40)
    assert len(bench.flow.sent) == 4
    assert bench.server.num_dialogs == 1


@virtual
async def test_an_invite_without_ack_ends_with_a_bye_that_is_sent_again(bench: Bench) -> None:
    bench.receive(message("INVITE"))
    await asyncio.sleep(32.1)
    assert bench.flow.starts()[-1].startswith("BYE sip:a@192.0.2.1:5072")
    assert bench.flow.sent[-1][1] == ("192.0.2.1", 5072)
    assert bench.usages.begun[0].ended == ["no_ack"]
    num = len(bench.flow.sent)
    await asyncio.sleep(0.6)
    assert len(bench.flow.sent) == num + 1
    branch = bench.flow.sent[-1][0].partition("branch=")[2].partition(";")[0]
    bench.receive(f"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 192.0.2.7:8060;branch={branch}\r\nCSeq: 1 BYE\r\n\r\n")
    await asyncio.sleep(40)
    assert len(bench.flow.sent) == num + 1


@pytest.mark.parametrize(("transport", "num_more"), [("UDP", 3), ("TCP", 0)])
@virtual_time
async def test_a_refusal_is_sent_again_over_udp_until_its_ack(transport: str, num_more: int) -> None:
    bench = Bench(transport)
    bench.receive(message("INVITE", body="refuse"))
    await asyncio.sleep(3.6)
    assert bench.flow.starts() == ["SIP/2.0 488 Not Acceptable Here"] * (1 + num_more)
    bench.receive(message("ACK", tag=bench.tag()))
    await asyncio.sleep(40)
    assert len(bench.flow.sent) == 1 + num_more
    assert not bench.server.num_dialogs


@virtual
async def test_a_request_that_comes_again_gets_the_same_response(bench: Bench) -> None:
    bench.receive(message("OPTIONS"))
    bench.receive(message("OPTIONS"))
    assert bench.flow.sent[0] == bench.flow.sent[1]
    await asyncio.sleep(33)
    bench.receive(message("OPTIONS"))
    assert bench.flow.sent[2] != bench.flow.sent[0]  # it is a new one by then, with another tag


@virtual
async def test_bye_ends_the_dialog_and_comes_again_in_vain(bench: Bench) -> None:
    bench.receive(message("INVITE"))
    tag = bench.tag()
    bench.receive(message("ACK", branch="z9hG4bK2", tag=tag))
    bench.receive(message("BYE", cseq=2, branch="z9hG4bK3", tag=tag))
    bench.receive(message("BYE", cseq=2, branch="z9hG4bK3", tag=tag))
    bench.receive(message("BYE", cseq=3, branch="z9hG4bK4", tag=tag))
    assert bench.flow.starts()[1:] == [
        "SIP/2.0 200 OK",
        "SIP/2.0 200 OK",
        "SIP/2.0 481 Call/Transaction Does Not Exist",
    ]
    assert bench.usages.begun[0].ended == ["hangup"]


@virtual
async def test_another_offer_within_a_dialog(bench: Bench) -> None:
    bench.receive(message("INVITE"))
    tag = bench.tag()
    bench.receive(message("INVITE", cseq=2, branch="z9hG4bK2", tag=tag))
    bench.receive(message("ACK", branch="z9hG4bK3", tag=tag))
    bench.receive(message("INVITE", cseq=3, branch="z9hG4bK4", tag=tag))
    bench.receive(message("INVITE", cseq=3, branch="z9hG4bK5", tag=tag))
    bench.receive(
        message("INVITE", cseq=4, branch="z9hG4bK6", tag=tag, body="refuse", From="<sip:a@192.0.2.1>;tag=other")
    )
    assert [each.split()[1] for each in bench.flow.starts()] == ["200", "491", "200", "500", "481"]


class RecordedStream(StreamFlow):
    def __init__(self) -> None:
        super().__init__(SipListener(lambda _text, _flow: None, lambda _host: True), "TCP")
        self.peer = PEER
        self.sent: list[str] = []

    def send(self, data: bytes, to: Address | None = None) -> None:
        del to
        self.sent.append(data.decode())


@virtual
async def test_a_connection_is_held_by_the_sessions_that_use_it_now(bench: Bench) -> None:
    first, second = RecordedStream(), RecordedStream()
    bench.server.receive(message("INVITE"), first)
    tag = first.sent[-1].partition("\r\nTo: ")[2].partition("\r\n")[0].partition(";tag=")[2]
    bench.server.receive(message("ACK", tag=tag), first)
    held = [(first.num_sessions, second.num_sessions)]
    flows: list[Flow] = [second, bench.flow, first]
    for number, flow in enumerate(flows):
        bench.server.receive(message("OPTIONS", cseq=number + 2, branch=f"z9hG4bKo{number}", tag=tag), flow)
        held.append((first.num_sessions, second.num_sessions))
    bench.server.receive(message("BYE", cseq=9, branch="z9hG4bK9", tag=tag), first)
    assert [*held, (first.num_sessions, second.num_sessions)] == [(1, 0), (0, 1), (0, 0), (1, 0), (0, 0)]


@virtual
async def test_cancel_of_an_answered_invite_has_no_effect(bench: Bench) -> None:
    bench.receive(message("INVITE"))
    bench.receive(message("CANCEL"))
    bench.receive(message("CANCEL", branch="z9hG4bK9"))
    assert [each.split()[1] for each in bench.flow.starts()] == ["200", "200", "481"]
    assert not bench.usages.begun[0].ended


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (message("INVITE", Content_Length="50000"), "400"),
        (message("INVITE", CSeq="1 OPTIONS"), "400"),
        (message("INVITE", Contact=""), "400"),
        (message("INVITE", Content_Type="text/plain"), "415"),
        (message("INVITE", body=""), "488"),
        (message("INVITE", Require="100rel, foo"), "420"),
        (message("MESSAGE"), "405"),
        (message("BYE", tag="nobody"), "481"),
    ],
)
@virtual_time
async def test_what_is_refused(text: str, status: str) -> None:
    bench = Bench()
    bench.receive(text)
    assert [each.split()[1] for each in bench.flow.starts()] == [status]
    assert not bench.server.num_dialogs


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\r\n\r\n",
        "INVITE sip:m@192.0.2.7 SIP/2.0\r\n\r\n",
        message("INVITE", Via=""),
        message("INVITE", Call_ID=""),
        message("INVITE", CSeq="x INVITE"),
        "SIP/2.0 200 OK\r\n\r\n",
        message("ACK", tag="nobody"),
    ],
)
@virtual_time
async def test_what_is_not_answered(text: str) -> None:
    bench = Bench()
    bench.receive(text)
    assert not bench.flow.sent


@pytest.mark.parametrize(
    ("via", "noted", "to"),
    [
        (";rport", ";rport=5070;received=192.0.2.1", PEER),
        ("", "", ("192.0.2.1", 5071)),
        (";received=198.51.100.9", "", ("192.0.2.1", 5071)),
    ],
)
def test_a_response_goes_where_via_and_the_sender_say(via: str, noted: str, to: Address) -> None:
    found = requests.read(message("OPTIONS", via=via), FakeFlow())
    assert found is not None
    assert found.via == f"SIP/2.0/UDP 192.0.2.1:5071;branch=z9hG4bK1{noted}"
    assert found.reply_to == to


@contextlib.asynccontextmanager
async def listening(
    take: Callable[[str, Flow], None],
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    listener = SipListener(take, lambda host: host == "127.0.0.1")
    port = await listener.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        listener.close()


async def test_messages_on_a_stream_are_taken_apart_and_keep_alives_answered() -> None:
    came: list[str] = []
    async with listening(lambda text, _flow: came.append(text)) as (reader, writer):
        one, other = message("INVITE"), message("OPTIONS")
        data = (one + other).encode()
        writer.write(data[:100])
        await asyncio.sleep(0.01)
        writer.write(data[100:] + b"\r\n\r\n")
        async with asyncio.timeout(2):
            assert await reader.readexactly(2) == b"\r\n"
        assert came == [one, other]


@pytest.mark.parametrize("data", [b"x" * 70_000, b"OPTIONS sip:m SIP/2.0\r\nCSeq: 1 OPTIONS\r\n\r\n"])
async def test_a_stream_that_has_no_messages_is_closed(data: bytes) -> None:
    async with listening(lambda _text, _flow: None) as (reader, writer):
        writer.write(data)
        async with asyncio.timeout(2):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
