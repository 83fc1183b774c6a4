"""Several trunks: each registers with its own password, a number chooses one, another takes the calls that it refuses."""

import asyncio
import re
import time
from pathlib import Path

import pytest

from lab.configured import server_with, until_readyz
from lab.ports import HOST, free_ports
from lab.raw_sip import RawCaller, RawPeer, digest_response
from lab.server_under_test import EventLog, Server
from tests.e2e.test_ua_processes import TWO, until_both

pytestmark = pytest.mark.e2e

PASSWORDS = {name: f"{name}'s own word" for name in ("alpha", "beta", "gamma", "delta", "epsilon")}
CHALLENGE = 'Digest realm="carrier", nonce="abcdef", algorithm=MD5'


def trunk(name: str, peer: RawPeer, **more: str) -> dict[str, str]:
    keys = {
        "registrar": f"sip:{HOST}:{peer.port}",
        "username": f"user-{name}",
        "password": PASSWORDS[name],
        "retry_s": "1",
        **more,
    }
    return {f"trunks__{name}__{key}": value for key, value in keys.items()}


def is_proven(request: str, method: str, password: str, header: str = "Authorization") -> bool:
    given = re.search(rf"^{header}: (.*?)\r$", request, re.MULTILINE)
    assert given is not None
    response = re.search(r'response="(\w+)"', given[1])
    assert response is not None
    return response[1] == digest_response(given[1], method=method, password=password)


def offered(message: str) -> str:
    """The payload types of a message's session description."""
    found = re.search(r"^m=audio \d+ RTP/AVP (.*?)\r$", message, re.MULTILINE)
    assert found is not None
    return found[1]


async def register(peer: RawPeer, name: str, server: Server, *, user: str = "") -> None:
    await peer.expect("REGISTER")
    peer.answer("401 Unauthorized", headers=f"WWW-Authenticate: {CHALLENGE}\r\n")
    request = await peer.expect("REGISTER")
    assert is_proven(request, "REGISTER", PASSWORDS[name])
    peer.answer("200 OK", headers=f"Contact: <sip:{user or f'user-{name}'}@{HOST}:{server.sip_port}>;expires=60\r\n")


async def test_each_trunk_registers_by_itself_and_serves_its_own_calls(tmp_path: Path) -> None:
    async with RawPeer() as alpha, RawPeer() as beta, RawPeer() as gamma, RawPeer() as delta, RawPeer() as epsilon:
        settings = {
            **trunk("alpha", alpha, prefixes='["+49"]', failover_to='["beta"]', codecs='["PCMA"]'),
            **trunk("beta", beta, prefixes='["+1"]', caller_id="+4930555"),
            **trunk("gamma", gamma, username="greet", codecs='["PCMA", "G722"]'),
            **trunk("delta", delta, expires_s="60"),
            **trunk("epsilon", epsilon),
        }
        async with server_with(tmp_path, **settings) as server:
            await asyncio.gather(
                register(alpha, "alpha", server),
                register(beta, "beta", server),
                register(gamma, "gamma", server, user="greet"),
                a_wrong_password_and_an_interval_that_is_too_brief(server, delta, epsilon),
            )
            async with server.events() as log:
                await the_next_trunk_follows_within_the_same_call(server, log, alpha, beta)
            async with server.events() as log:
                await a_call_that_comes_in_says_by_which_trunk(server, log)
        assert not any(word in server.log for word in PASSWORDS.values())


async def the_next_trunk_follows_within_the_same_call(
    server: Server, log: EventLog, alpha: RawPeer, beta: RawPeer
) -> None:
    status, call = await server.post("/v1/calls", {"to": "+4930123456", "client_state": "mine"})
    assert (status, call["trunk"]) == (201, "alpha")
    invite = await alpha.expect("INVITE")
    assert invite.startswith(f"INVITE sip:+4930123456@{HOST}:{alpha.port};user=phone SIP/2.0")
    assert re.search(r"^From: .*sip:user-alpha@", invite, re.MULTILINE)
    assert offered(invite) == "8 101"
    alpha.answer("503 Service Unavailable")
    await alpha.expect("ACK")
    failed = await log.wait("call.trunk_failed")
    assert failed["data"] == {
        "trunk": "alpha", "sip_code": 503, "next": "beta", "client_state": "mine",
    }  # fmt: skip

    await beta.expect("INVITE")
    beta.answer("407 Who are you", headers=f"Proxy-Authenticate: {CHALLENGE}\r\n")
    await beta.expect("ACK")
    invite = await beta.expect("INVITE")
    assert is_proven(invite, "INVITE", PASSWORDS["beta"], "Proxy-Authorization")
    assert re.search(r"^From: .*sip:\+4930555@", invite, re.MULTILINE)
    assert offered(invite) == "0 8 9 101", "the other trunk has all codecs"
    beta.answer("200 OK", formats="0 101")
    await beta.expect("ACK")
    assert (await log.wait("call.established"))["call_id"] == failed["call_id"] == call["id"]
    shown = (await server.get(f"/v1/calls/{call['id']}"))[1]
    assert (shown["trunk"], shown["state"]) == ("beta", "established")
    assert (await server.post(f"/v1/calls/{call['id']}/speak", {"text": "Hi.", "then": "hangup"}))[0] == 201
    await beta.take_bye()
    ending = (await log.wait("call.terminated"))["data"]["ending"]
    assert ending["result"] == "completed"

    async with server.events() as later:  # who is busy is not called again
        assert (await server.post("/v1/calls", {"to": "+4930123456"}))[0] == 201
        await alpha.expect("INVITE")
        alpha.answer("486 Busy Here")
        await alpha.expect("ACK")
        assert (await later.wait("call.terminated"))["data"]["ending"]["reason"] == "busy"
    metrics = (await server.get_text("/metrics"))[1]
    assert 'cctts_trunk_failures_total{code="503",trunk="alpha"} 1.0' in metrics
    assert 'cctts_trunk_failures_total{code="486",trunk="alpha"} 1.0' in metrics
    assert 'cctts_trunk_registered{trunk="beta"} 1.0' in metrics


async def a_call_that_comes_in_says_by_which_trunk(server: Server, log: EventLog) -> None:
    async with RawCaller("greet", server.sip_port) as caller:
        caller.invite(formats="0 9 8 101")
        assert (await log.wait("call.incoming"))["data"]["trunk"] == "gamma"
        answer = await caller.acknowledge(200)
        assert offered(answer.text).split()[0] == "9", "the first of the trunk's codecs that the caller named"
        assert (await caller.bye()).status == 200
    async with RawCaller("greet", server.sip_port) as caller:
        caller.invite(formats="0 101")
        await caller.acknowledge(488)


async def a_wrong_password_and_an_interval_that_is_too_brief(server: Server, delta: RawPeer, epsilon: RawPeer) -> None:
    await delta.expect("REGISTER")
    delta.answer("423 Interval Too Brief", headers="Min-Expires: 600\r\n")
    assert re.search(r"^Expires: 600\r$", await delta.expect("REGISTER"), re.MULTILINE)
    delta.answer("200 OK", headers=f"Contact: <sip:user-delta@{HOST}:{server.sip_port}>;expires=600\r\n")
    await epsilon.expect("REGISTER")
    epsilon.answer("401 Unauthorized", headers=f"WWW-Authenticate: {CHALLENGE}\r\n")
    await epsilon.expect("REGISTER")
    epsilon.answer("403 Forbidden")
    await epsilon.expect("REGISTER")  # it goes on trying
    metrics = (await server.get_text("/metrics"))[1]
    assert 'cctts_trunk_registered{trunk="delta"} 1.0' in metrics
    assert 'cctts_trunk_registered{trunk="epsilon"} 0.0' in metrics
    assert (await server.get("/readyz"))[0] == 200, "neither is required"


async def test_a_host_that_is_not_there_gives_way_to_the_next_trunk(tmp_path: Path) -> None:
    async with RawPeer() as beta, RawPeer() as silent, RawPeer() as slow:
        settings = {
            "trunks__alpha__domain": f"{HOST}:{free_ports()}",
            "trunks__alpha__transport": "tcp",
            "trunks__alpha__prefixes": '["+49"]',
            "trunks__alpha__failover_to": '["beta", "gamma"]',
            "trunks__alpha__failover_codes": "[480]",
            "trunks__beta__domain": f"{HOST}:{beta.port}",
            "trunks__beta__username": "ours",
            "trunks__beta__failover_codes": "[503]",
            "trunks__gamma__domain": f"{HOST}:{beta.port}",
            "trunks__silent__domain": f"{HOST}:{silent.port}",
            "trunks__silent__prefixes": '["+33"]',
            "trunks__silent__failover_to": '["slow"]',
            "trunks__silent__response_timeout_ms": "700",
            "trunks__slow__domain": f"{HOST}:{slow.port}",
            "trunks__slow__response_timeout_ms": "700",
        }
        async with server_with(tmp_path, **settings) as server:
            await until_readyz(server, 200)
            async with server.events() as log:
                await a_refused_connection_goes_on_at_once_and_a_hang_up_there_ends_the_call(server, log, beta)
            async with server.events() as log:
                await a_silent_host_is_given_up_and_gets_a_cancel_when_it_answers_yet(server, log, silent, slow)


async def a_refused_connection_goes_on_at_once_and_a_hang_up_there_ends_the_call(
    server: Server, log: EventLog, beta: RawPeer
) -> None:
    began_s = time.monotonic()
    status, call = await server.post("/v1/calls", {"to": "+4930123456", "display_name": "Shop"})
    assert (status, call["trunk"]) == (201, "alpha")
    invite = await beta.expect("INVITE")
    assert time.monotonic() - began_s < 2.0, "not after the 32 s of timer B"
    assert re.search(rf'^From: "Shop" <sip:ours@{HOST}>', invite, re.MULTILINE)
    assert (await log.wait("call.trunk_failed"))["data"] == {"trunk": "alpha", "sip_code": 0, "next": "beta"}
    beta.answer("180 Ringing")
    await log.wait("call.early")
    assert (await server.delete(f"/v1/calls/{call['id']}"))[0] == 200
    await beta.expect("CANCEL")
    beta.answer("200 OK")
    beta.request = invite
    beta.answer("503 Service Unavailable")  # in place of 487
    await beta.expect("ACK")
    assert (await log.wait("call.terminated"))["data"]["ending"]["result"] == "unanswered"
    with pytest.raises(TimeoutError):
        await beta.expect("INVITE", timeout_s=0.5)
    metrics = (await server.get_text("/metrics"))[1]
    assert 'cctts_trunk_failures_total{code="0",trunk="alpha"} 1.0' in metrics


async def a_silent_host_is_given_up_and_gets_a_cancel_when_it_answers_yet(
    server: Server, log: EventLog, silent: RawPeer, slow: RawPeer
) -> None:
    call = await server.create("/v1/calls", {"to": "+3330123456"})
    await silent.expect("INVITE")
    await slow.expect("INVITE")
    assert (await log.wait("call.trunk_failed"))["data"] == {"trunk": "silent", "sip_code": 0, "next": "slow"}
    silent.answer("180 Ringing")
    await silent.expect("CANCEL")
    silent.answer("200 OK")
    slow.answer("100 Trying")  # a slow one is waited for
    with pytest.raises(TimeoutError):
        await log.wait("call.terminated", timeout_s=1.5)
    slow.answer("200 OK", formats="0 101")
    await slow.expect("ACK")
    await log.wait("call.established")
    assert (await server.delete(f"/v1/calls/{call['id']}"))[0] == 200
    await slow.take_bye()
    await log.wait("call.terminated")


async def test_every_user_agent_process_places_calls_of_a_trunk_and_one_registers(tmp_path: Path) -> None:
    async with RawPeer() as alpha:
        settings = trunk("alpha", alpha, prefixes='["+49"]')
        async with server_with(tmp_path, **TWO, **settings) as server, server.events() as log:
            await until_both(server)
            await register(alpha, "alpha", server)
            await until_readyz(server, 200)
            ports, up = set(), []
            for number in range(2):
                call = await server.create("/v1/calls", {"to": f"+49301{number}"})
                await alpha.expect("INVITE")
                alpha.answer("407 Who are you", headers=f"Proxy-Authenticate: {CHALLENGE}\r\n", tag=f"a{number}")
                await alpha.expect("ACK")
                invite = await alpha.expect("INVITE")
                assert is_proven(invite, "INVITE", PASSWORDS["alpha"], "Proxy-Authorization")
                ports.update(re.findall(r"^Contact: <sip:[^>]*:(\d+)", invite, re.MULTILINE))
                alpha.answer("200 OK", formats="0 101", tag=f"b{number}")
                await alpha.expect("ACK")
                await log.wait("call.established", call_id=call["id"])
                up.append(call["id"])
            for call_id in up:
                assert (await server.delete(f"/v1/calls/{call_id}"))[0] == 200
                await alpha.take_bye()
            with pytest.raises(TimeoutError):
                await alpha.expect("REGISTER", timeout_s=0.2)
    assert len(ports) == 2
