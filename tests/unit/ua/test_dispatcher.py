"""Which UA process gets which request."""

import pytest

from cc_tts.config.schema import SipConfig, UaConfig
from cc_tts.config.sections.log import LogConfig
from cc_tts.ua import dispatcher
from cc_tts.ua.dispatcher import DOWN, Dispatcher, DispatcherSettings
from tests.support.memory import held_bytes

pytestmark = pytest.mark.unit

CALLER = ("192.0.2.7", 5060)
PORTS = (5070, 5071, 5072)


def request(call_id: str, method: str = "INVITE") -> bytes:
    return (
        f"{method} sip:greet@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.7;branch=z9hG4bK{call_id}\r\n"
        f"From: <sip:a@b>;tag=1\r\nTo: <sip:greet@b>\r\nCall-ID: {call_id}\r\nCSeq: 1 {method}\r\n\r\n"
    ).encode()


@pytest.fixture
def spread() -> Dispatcher:
    made = Dispatcher(DispatcherSettings(sip=SipConfig(host="0.0.0.0"), ua=UaConfig(processes=3), log=LogConfig()))
    made.set_free_calls((4, 6, 5))
    return made


def port_for(spread: Dispatcher, call_id: str, method: str = "INVITE") -> int:
    routed = spread.route(request(call_id, method), CALLER)
    assert routed is not None
    assert routed[1][0] == "127.0.0.1"
    return routed[1][1]


def test_a_new_call_goes_where_most_calls_are_free(spread: Dispatcher) -> None:
    ports = [port_for(spread, f"call{number}") for number in range(15)]
    assert ports[:3] == [5071, 5071, 5072]
    assert [ports.count(port) for port in PORTS] == [4, 6, 5]
    spread.set_free_calls((DOWN, 0, 0))
    assert port_for(spread, "one more") in (5071, 5072), "all full, the user agent refuses"


def test_what_is_not_an_invite_takes_no_call(spread: Dispatcher) -> None:
    before = held_bytes(spread)
    assert {port_for(spread, f"ping{number}", "OPTIONS") for number in range(1000)} == {5071}
    assert held_bytes(spread) < 1.5 * before


def test_a_process_that_is_down_gets_nothing(spread: Dispatcher) -> None:
    assert port_for(spread, "first") == 5071
    spread.set_free_calls((4, DOWN, 5))
    assert port_for(spread, "first", "BYE") == 5072, "which answers 481"
    assert 5071 not in {port_for(spread, f"call{number}") for number in range(20)}


def test_without_any_process_a_caller_gets_503_and_an_ack_nothing(spread: Dispatcher) -> None:
    spread.set_free_calls((DOWN, DOWN, DOWN))
    refused = spread.route(request("one"), CALLER)
    assert refused is not None
    assert refused[0].startswith(b"SIP/2.0 503 ")
    assert b"\r\nRetry-After: 5\r\n" in refused[0]
    assert refused[1] == CALLER
    assert spread.route(request("one", "ACK"), CALLER) is None


def test_responses_are_taken_from_the_processes_only(spread: Dispatcher) -> None:
    forwarded = spread.route(request("one"), CALLER)
    assert forwarded is not None
    vias = [line for line in forwarded[0].split(b"\r\n") if line.startswith(b"Via")]
    response = b"\r\n".join([b"SIP/2.0 200 OK", *vias, b"", b""])
    assert spread.route(response, ("192.0.2.9", 5071)) is None
    assert spread.route(response, ("127.0.0.1", 5999)) is None
    returned = spread.route(response, ("127.0.0.1", 5071))
    assert returned is not None
    assert returned[1] == CALLER


def test_a_response_to_a_process_that_comes_here_is_handed_on(spread: Dispatcher) -> None:
    response = b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 192.0.2.1:5072;branch=z9hG4bKx\r\n\r\n"
    assert spread.route(response, CALLER) == (response, ("127.0.0.1", 5072))
    assert spread.route(response.replace(b"5072", b"5080"), CALLER) is None


def test_a_dialog_stays_with_its_process_up_to_a_limit_of_call_ids(
    spread: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "MAX_CALL_IDS", 10)

    def call(numbers: range) -> int:
        for number in numbers:
            port_for(spread, f"call{number}")
            port_for(spread, "kept")
        return held_bytes(spread)

    few = call(range(20))
    assert call(range(20, 1000)) < 1.5 * few
    spread.set_free_calls((9, 0, 0))
    assert {port_for(spread, "kept", method) for method in ("INVITE", "CANCEL", "ACK", "BYE")} == {5071}
    assert port_for(spread, "call3", "BYE") == 5070


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\r\n\r\n",
        b"\xff" * 2000,
        b"\0\1\0\0!\x12\xa4B",
        b"INVITE sip:x SIP/2.0\r\n\r\n",
        b"INVITE x\r\nCall-ID: c\r\n",
        b"Via:x sip:a SIP/2.0\r\nCall-ID: c\r\n",
        b"INVITE sip:a SIP/2.0\rCall-ID: c\r\n",
        b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bKx\r\n\r\n",
    ],
)
def test_what_is_not_sip_is_dropped(spread: Dispatcher, datagram: bytes) -> None:
    assert spread.route(datagram, CALLER) is None
