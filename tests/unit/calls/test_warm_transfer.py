"""A warm transfer in virtual time: what caller and agent hear in each state, and how it ends, once."""

from typing import Any

import pytest
from msgspec.structs import asdict

from cc_tts.calls.adoption.record import KeptBridge
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.transfers import transfers, warm
from cc_tts.calls.transfers.bridge import new_bridge_id
from cc_tts.calls.transfers.transfer import ReferRequest
from cc_tts.calls.transfers.warm import WarmRequest, WarmTransfer
from cc_tts.errors import BridgeActive, CapacityExceeded, TransferActive, TransferNotAllowed, WrongState
from cc_tts.speech.prompt import Prompt, TextContent
from cc_tts.ua import messages
from tests.fakes.exchange import Exchange
from tests.fakes.virtual_loop import VirtualLoop

pytestmark = pytest.mark.unit

TARGET = "sip:1001@pbx.example.com"
BRIEF = Prompt(content=TextContent("A caller. Press one."))


class Desk:
    def __init__(self, exchange: Exchange, loop: VirtualLoop) -> None:
        self.exchange, self.loop, self.ua = exchange, loop, exchange.ua
        self.caller: Call = exchange.registry.call(exchange.talking())
        self.transfer: WarmTransfer | None = None

    async def begin(self, to: str = TARGET, **wanted: Any) -> None:
        self.transfer = warm.begin(self.caller, WarmRequest(to=to, **wanted), self.exchange.registry.outgoing)
        await self.exchange.settle()

    @property
    def agent(self) -> Call:
        assert self.transfer is not None
        assert self.transfer.agent is not None
        return self.transfer.agent

    async def answered(self) -> None:
        self.ua.established(self.agent.id, at_ns=self.exchange.clock.now_ns())
        await self.exchange.settle()

    async def briefed(self) -> None:
        self.ua.finished(self.agent.id, self.agent.player.queue[0].id)
        await self.exchange.settle()

    def bridged(self) -> None:
        ((first, second, bridge_id, _),) = self.ua.commands("bridge")
        for call_id in (first, second):
            self.ua.report(messages.Bridged(call_id, bridge_id))

    @property
    def told(self) -> list[dict[str, Any]]:
        return [asdict(event.data) for event in self.exchange.seen if event.type == "call.transfer"]

    @property
    def states(self) -> list[str]:
        return [each["state"] for each in self.told]

    def check_failed(self, reason: str) -> None:
        """It has failed for this reason, once; the agent is hung up, the caller hears no music."""
        assert [each["reason"] for each in self.told if each["state"] in ("failed", "succeeded")] == [reason]
        assert self.caller.running_transfer is None
        assert all(each.discard_cause or each.is_complete for each in self.caller.player.queue)
        if self.agent.state is not CallState.TERMINATED:
            assert [each[0] for each in self.ua.commands("hangup")] == [self.agent.id]


@pytest.fixture
def desk(timed: tuple[Exchange, VirtualLoop]) -> Desk:
    return Desk(*timed)


async def test_the_caller_hears_music_until_the_agent_has_pressed_the_key(desk: Desk) -> None:
    await desk.begin(brief=BRIEF, accept_key="1", client_state="s")
    assert len(desk.caller.player.queue) == 1
    assert desk.ua.placed_beside == {desk.agent.id: desk.caller.id}
    desk.ua.report(messages.CallRinging(desk.agent.id, "sip", 180))
    await desk.answered()
    await desk.briefed()
    desk.ua.digit(desk.agent.id, "2", at_ns=1)
    assert desk.ua.commands("bridge") == []
    desk.ua.digit(desk.agent.id, "1", at_ns=2)
    assert desk.caller.player.queue[0].discard_cause is not None
    desk.bridged()
    assert desk.states == ["requested", "ringing", "answered", "succeeded"]
    assert {each["agent_call_id"] for each in desk.told} == {desk.agent.id}
    assert {each["client_state"] for each in desk.told} == {"s"}
    assert desk.ua.commands("hangup") == []
    assert desk.exchange.sample("cctts_transfers_total", mode="warm", result="succeeded") == 1


async def test_neither_keys_nor_words_of_the_caller_end_the_music(desk: Desk) -> None:
    music = Prompt(content=TextContent("La la"), barge_in_dtmf=True, barge_in_speech=True, then="hangup")
    await desk.begin(music=music)
    (heard,) = desk.caller.player.queue
    desk.caller.player.barge_in(1, "dtmf")
    desk.caller.player.barge_in(1, "speech")
    assert heard.discard_cause is None
    desk.ua.ended(desk.agent.id, sip_code=486)
    assert heard.discard_cause is not None
    assert desk.ua.commands("hangup") == []


@pytest.mark.parametrize("brief", [None, BRIEF])
async def test_without_a_key_who_answers_is_joined_after_the_brief(desk: Desk, brief: Prompt | None) -> None:
    await desk.begin(brief=brief)
    await desk.answered()
    if brief is not None:
        assert desk.ua.commands("bridge") == []
        await desk.briefed()
    desk.bridged()
    assert desk.states == ["requested", "answered", "succeeded"]


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ((486, "remote"), "busy"),
        ((480, "remote"), "no_answer"),
        ((603, "remote"), "rejected"),
        ((0, "local"), "no_answer"),
    ],
)
async def test_an_agent_who_does_not_answer_gives_the_caller_back(
    desk: Desk, ending: tuple[int, messages.EndedBy], reason: str
) -> None:
    await desk.begin()
    sip_code, by = ending
    if by == "local":
        desk.agent.end("no_answer")
    desk.ua.ended(desk.agent.id, by=by, sip_code=sip_code)
    desk.check_failed(reason)
    assert desk.caller.state is CallState.ESTABLISHED


async def test_an_agent_who_presses_nothing_is_given_up(desk: Desk) -> None:
    await desk.begin(brief=BRIEF, accept_key="1", accept_timeout_ms=5000)
    await desk.answered()
    await desk.briefed()
    desk.loop.advance(5000)
    desk.check_failed("timeout")


@pytest.mark.parametrize("state", ["requested", "brief", "accept", "join"])
@pytest.mark.parametrize("who", ["agent", "caller", "user agent"])
async def test_whoever_goes_in_whatever_state_it_ends_once(desk: Desk, state: str, who: str) -> None:
    await desk.begin(brief=BRIEF, accept_key="1")
    if state != "requested":
        await desk.answered()
    if state in ("accept", "join"):
        await desk.briefed()
    if state == "join":
        desk.ua.digit(desk.agent.id, "1", at_ns=1)
    if who == "user agent":
        desk.ua.die()
    else:
        desk.ua.ended((desk.agent if who == "agent" else desk.caller).id)
    assert desk.states.count("failed") == 1
    assert desk.states[-1] == "failed"
    for call in (desk.caller, desk.agent):
        if call.state is CallState.TERMINATED:
            assert desk.exchange.kinds(call.id)[-1] == "call.terminated"
    if who == "caller":
        assert desk.told[-1]["reason"] == "call_ended"
        assert desk.agent.id in [each[0] for each in desk.ua.commands("hangup")]


async def test_a_call_that_is_to_end_with_the_failure_goes_back_to_the_dialplan(desk: Desk) -> None:
    await desk.begin(on_failure="hangup")
    desk.ua.ended(desk.agent.id, sip_code=486)
    assert desk.ua.causes == ["transfer_failed"]
    assert desk.ua.commands("hangup")[0][0] == desk.caller.id


async def test_a_bridge_that_is_not_made_is_a_failure(desk: Desk) -> None:
    await desk.begin()
    await desk.answered()
    ((first, second, bridge_id, _),) = desk.ua.commands("bridge")
    for call_id in (first, second):
        desk.ua.report(messages.Unbridged(call_id, bridge_id, "failed"))
    desk.check_failed("unknown")


async def test_what_was_queued_behind_the_music_is_heard_after_a_failure(desk: Desk) -> None:
    await desk.begin()
    utterance = desk.caller.speak(Prompt(content=TextContent("Nobody is there.")))
    desk.ua.ended(desk.agent.id, sip_code=486)
    assert utterance.discard_cause is None
    assert not utterance.is_complete


async def test_one_transfer_at_a_time_and_not_of_a_bridged_call(desk: Desk) -> None:
    await desk.begin()
    with pytest.raises(TransferActive):
        await desk.begin()
    with pytest.raises(TransferActive):
        transfers.begin(desk.caller, ReferRequest(to=TARGET))
    other = Desk(desk.exchange, desk.loop)
    third = desk.exchange.registry.call(desk.exchange.talking())
    other.caller.bridge.begin(third.bridge, KeptBridge(id=new_bridge_id(), other_call_id=third.id))
    with pytest.raises(BridgeActive):
        await other.begin()


async def test_an_agent_who_is_briefed_is_bridged_to_nobody_else(desk: Desk) -> None:
    other = desk.exchange.registry.call(desk.exchange.talking())
    await desk.begin(brief=BRIEF, accept_key="1")
    await desk.answered()
    with pytest.raises(BridgeActive):
        desk.agent.bridge.begin(other.bridge, KeptBridge(id=new_bridge_id(), other_call_id=other.id))
    desk.ua.digit(desk.agent.id, "1", at_ns=1)
    desk.bridged()
    assert desk.states[-1] == "succeeded"


async def test_what_is_refused_leaves_the_caller_as_before(desk: Desk) -> None:
    with pytest.raises(TransferNotAllowed):
        await desk.begin("sip:+1900@elsewhere.example.com")
    for _ in range(3):
        desk.exchange.talking()
    with pytest.raises(CapacityExceeded):
        await desk.begin()
    assert [kind for kind in desk.exchange.kinds(desk.caller.id) if kind.startswith("speak.")] == [], "no music either"
    assert desk.caller.running_transfer is None
    desk.ua.ended(desk.caller.id)
    with pytest.raises(WrongState):
        await desk.begin()
    assert desk.told == []


async def test_a_server_that_takes_over_ends_it(desk: Desk) -> None:
    await desk.begin(client_state="s")
    agent = desk.exchange.snapshot(desk.agent.id, "invited", invite=None, media=None)
    after = Exchange.adopted(desk.exchange.snapshot(desk.caller.id), agent)
    told = [asdict(event.data) for event in after.seen if event.type == "call.transfer"]
    assert [(each["mode"], each["state"], each["reason"]) for each in told] == [("warm", "failed", "unknown")]
    assert [each[0] for each in after.ua.commands("hangup")] == [desk.agent.id]
    assert after.registry.call(desk.caller.id).state is CallState.ESTABLISHED
