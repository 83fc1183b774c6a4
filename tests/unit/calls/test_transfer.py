"""A transfer by REFER, in virtual time: what peers answer and tell, in any order, or not at all."""

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import asdict, replace

from cc_tts.calls.call import Call
from cc_tts.calls.transfers import transfers
from cc_tts.calls.transfers.transfer import BYE_AFTER_S, HOLD_TIMEOUT_S, LAST_WORD_S, ReferRequest, Transfer
from cc_tts.errors import TransferActive, TransferNotAllowed, WrongState
from cc_tts.speech.prompt import Prompt, TextContent
from cc_tts.ua import messages
from tests.fakes.exchange import Exchange
from tests.fakes.fake_ua import invite_of
from tests.fakes.virtual_loop import VirtualLoop

pytestmark = pytest.mark.unit

TARGET = "sip:1001@pbx.example.com"


class Referrer:
    def __init__(self, exchange: Exchange, loop: VirtualLoop) -> None:
        self.exchange, self.loop = exchange, loop
        self.ua = exchange.ua
        self.call: Call = exchange.registry.call(exchange.talking("silent"))

    def transfer(self, to: str = TARGET, **wanted: Any) -> Transfer:
        return transfers.begin(self.call, ReferRequest(to=to, **wanted))

    def held(self, by: messages.HeldBy = "local") -> None:
        self.ua.report(messages.HoldChanged(call_id=self.call.id, by=by))

    def told(self, by: messages.ToldBy, sip_code: int, *, is_last: bool = False) -> None:
        self.ua.report(
            messages.TransferProgress(
                call_id=self.call.id, by=by, sip_code=sip_code, is_last=is_last or sip_code >= 300
            )
        )

    def referred(self, **wanted: Any) -> Transfer:
        transfer = self.transfer(**wanted)
        self.held()
        assert self.ua.commands("transfer")
        return transfer

    @property
    def events(self) -> list[dict[str, Any]]:
        return [asdict(event.data) for event in self.exchange.seen if event.type == "call.transfer"]

    @property
    def states(self) -> list[str]:
        return [event["state"] for event in self.events]

    @property
    def hangups(self) -> list[messages.Hangup]:
        return [each for each in self.ua.sent if isinstance(each, messages.Hangup)]

    @property
    def result(self) -> tuple[Any, ...]:
        (last,) = [event for event in self.events if event["state"] in ("succeeded", "failed")]
        assert last is self.events[-1] or last == self.events[-1]
        return last["state"], last["sip_code"], last["reason"], last["confirmed"]


@pytest.fixture
def referrer(timed: tuple[Exchange, VirtualLoop]) -> Referrer:
    return Referrer(*timed)


async def test_the_call_is_held_then_referred_and_kept_until_it_has_succeeded(referrer: Referrer) -> None:
    transfer = referrer.transfer(headers={"X-A": "b"}, transfer_id="t1", client_state="s")
    assert referrer.ua.commands("hold") == [(referrer.call.id, True)]
    assert referrer.ua.commands("transfer") == []
    referrer.held()
    assert referrer.ua.commands("transfer") == [(referrer.call.id, TARGET, {"X-A": "b"}, "")]
    with pytest.raises(TransferActive):
        referrer.transfer()
    referrer.told("answer", 202)
    for sip_code in (100, 180, 100, 183, 200):
        referrer.told("notify", sip_code, is_last=sip_code == 200)
    assert referrer.states == ["requested", "accepted", "trying", "ringing", "succeeded"], "they only go forward"
    assert referrer.result == ("succeeded", 200, None, True)
    assert {(event["transfer_id"], event["client_state"]) for event in referrer.events} == {("t1", "s")}
    assert transfer.is_over
    assert referrer.ua.commands("hangup") == []
    referrer.loop.advance(BYE_AFTER_S * 1000)
    assert referrer.ua.causes == ["transferred"]
    assert referrer.exchange.sample("cctts_transfers_total", mode="blind", result="succeeded") == 1


@pytest.mark.parametrize(
    ("told", "result"),
    [
        ([("answer", 405)], ("failed", 405, "not_supported", UNSET)),
        ([("answer", 501)], ("failed", 501, "not_supported", UNSET)),
        ([("answer", 603)], ("failed", 603, "rejected", UNSET)),
        ([("answer", 403)], ("failed", 403, "rejected", UNSET)),
        ([("answer", 408)], ("failed", 408, "timeout", UNSET)),
        ([("answer", 202), ("notify", 486)], ("failed", 486, "busy", UNSET)),
        ([("answer", 202), ("notify", 600)], ("failed", 600, "busy", UNSET)),
        ([("answer", 202), ("notify", 480)], ("failed", 480, "no_answer", UNSET)),
        ([("answer", 202), ("notify", 487)], ("failed", 487, "no_answer", UNSET)),
        ([("answer", 202), ("notify", 408)], ("failed", 408, "no_answer", UNSET)),
        ([("answer", 202), ("notify", 603)], ("failed", 603, "rejected", UNSET)),
        ([("answer", 202), ("notify", 405)], ("failed", 405, "rejected", UNSET)),
        ([("notify", 100), ("notify", 200), ("answer", 202)], ("succeeded", 200, None, True)),
        ([("notify", 200), ("answer", 603), ("notify", 486)], ("succeeded", 200, None, True)),
        ([("answer", 202), ("notify", 180), ("notify", 100), ("notify", 503)], ("failed", 503, "rejected", UNSET)),
        ([("answer", 202), ("notify", 486), ("notify", 200)], ("failed", 486, "busy", UNSET)),
    ],
)
async def test_the_outcome_is_told_once_in_whatever_order_it_comes(
    referrer: Referrer, told: list[tuple[messages.ToldBy, int]], result: tuple[Any, ...]
) -> None:
    referrer.referred()
    for by, sip_code in told:
        referrer.told(by, sip_code)
    assert referrer.result == result


async def test_after_a_failure_the_call_is_taken_back_and_kept(referrer: Referrer) -> None:
    referrer.referred()
    referrer.told("answer", 405)
    assert referrer.ua.commands("hold") == [(referrer.call.id, True), (referrer.call.id, False)]
    assert referrer.ua.commands("hangup") == []
    referrer.held("none")
    referrer.referred(transfer_id="again", on_failure="hangup")
    assert referrer.states == ["requested", "failed", "requested"]
    referrer.told("answer", 603)
    assert referrer.ua.causes == ["transfer_failed"], "where that is wanted"


async def test_a_far_side_that_tells_nothing_is_given_up(referrer: Referrer) -> None:
    referrer.referred(timeout_ms=5000)
    referrer.told("answer", 202)
    referrer.loop.advance(4999)
    assert referrer.states == ["requested", "accepted"]
    referrer.loop.advance(1)
    assert referrer.result == ("failed", None, "timeout", UNSET)
    referrer.told("notify", 200)
    assert referrer.states[-1] == "failed"


async def test_a_hang_up_after_the_202_is_a_success_that_nobody_confirms(referrer: Referrer) -> None:
    referrer.referred()
    referrer.told("answer", 202)
    referrer.ua.ended(referrer.call.id)
    assert referrer.result == ("succeeded", None, "unknown", False)
    assert referrer.exchange.kinds(referrer.call.id)[-2:] == ["call.transfer", "call.terminated"]


async def test_reports_that_end_without_a_result_leave_time_for_a_hang_up(referrer: Referrer) -> None:
    referrer.referred()
    referrer.told("answer", 202)
    referrer.told("notify", 0, is_last=True)
    assert referrer.states == ["requested", "accepted"]
    referrer.loop.advance(LAST_WORD_S * 1000)
    assert referrer.result == ("failed", None, "unknown", UNSET)


@pytest.mark.parametrize("step", ["speak", "hold", "refer"])
async def test_a_call_that_ends_before_ends_the_transfer(referrer: Referrer, step: str) -> None:
    prompt = Prompt(content=TextContent("One moment")) if step == "speak" else None
    referrer.transfer(prompt=prompt)
    if step == "refer":
        referrer.held()
    await referrer.exchange.settle()
    referrer.ua.ended(referrer.call.id)
    assert referrer.result == ("failed", None, "call_ended", UNSET)
    referrer.loop.advance(60_000)
    assert len(referrer.events) == (2 if step == "refer" else 1)


@pytest.mark.parametrize("how", ["hangup", "user agent"])
async def test_our_own_hang_up_or_the_death_of_the_user_agent_is_no_success(referrer: Referrer, how: str) -> None:
    referrer.referred()
    referrer.told("answer", 202)
    if how == "hangup":
        referrer.call.hangup()
        referrer.ua.ended(referrer.call.id, by="local")
    else:
        referrer.ua.die()
    assert referrer.result == ("failed", None, "call_ended", UNSET)


async def test_what_is_said_first_is_said_before_the_hold(referrer: Referrer) -> None:
    referrer.transfer(prompt=Prompt(content=TextContent("One moment")))
    await referrer.exchange.settle()
    assert referrer.ua.commands("hold") == []
    referrer.ua.finished(referrer.call.id, referrer.call.player.queue[0].id)
    assert referrer.ua.commands("hold") == [(referrer.call.id, True)]


async def test_prompts_end_when_it_is_accepted(referrer: Referrer) -> None:
    referrer.referred()
    utterance = referrer.call.speak(Prompt(content=TextContent("Still there?")))
    await referrer.exchange.settle()
    assert referrer.ua.commands("cut") == []
    referrer.told("answer", 202)
    assert referrer.ua.commands("cut") == [(referrer.call.id, utterance.id)]


async def test_without_hold_prompts_go_on(referrer: Referrer) -> None:
    referrer.transfer(hold=False)
    referrer.call.speak(Prompt(content=TextContent("Please wait")))
    await referrer.exchange.settle()
    referrer.told("answer", 202)
    referrer.told("answer", 603)
    assert referrer.ua.commands("hold") == []
    assert referrer.ua.commands("cut") == []


async def test_a_call_that_is_held_already_is_left_held(referrer: Referrer) -> None:
    referrer.held("remote")
    referrer.transfer()
    referrer.told("answer", 603)
    assert referrer.ua.commands("hold") == []
    assert referrer.result[2] == "rejected"


@pytest.mark.parametrize("how", ["refused", "late"])
async def test_a_hold_that_fails_does_not_keep_it_back(referrer: Referrer, how: str) -> None:
    referrer.transfer()
    if how == "refused":
        referrer.ua.report(messages.CommandFailed(call_id=referrer.call.id, command="hold", detail="491"))
    else:
        referrer.loop.advance(HOLD_TIMEOUT_S * 1000)
    assert len(referrer.ua.commands("transfer")) == 1
    referrer.told("answer", 603)
    assert referrer.ua.commands("hold") == [(referrer.call.id, True)], "nothing to take back"
    if how == "refused":
        referrer.held()
        assert len(referrer.ua.commands("hold")) == 1, "the client held it"


async def test_a_hold_that_is_answered_after_the_transfer_has_failed_is_taken_back_once(referrer: Referrer) -> None:
    referrer.transfer()
    referrer.loop.advance(HOLD_TIMEOUT_S * 1000)
    referrer.told("answer", 603)
    referrer.held()
    assert referrer.ua.commands("hold") == [(referrer.call.id, True), (referrer.call.id, False)]
    referrer.held("none")
    referrer.held()
    assert len(referrer.ua.commands("hold")) == 2, "the client held it"


async def test_a_refer_that_cannot_be_sent_fails(referrer: Referrer) -> None:
    referrer.referred()
    referrer.ua.report(messages.CommandFailed(call_id=referrer.call.id, command="transfer", detail="?"))
    assert referrer.result == ("failed", None, "unknown", UNSET)


async def test_only_allowed_targets_and_only_an_established_call(referrer: Referrer) -> None:
    for to in ("sip:1001@evil.example.com", "sip:1001@pbx.example.com;maddr=192.0.2.1"):
        with pytest.raises(TransferNotAllowed):
            referrer.transfer(to)
    ringing = referrer.exchange.registry.call(referrer.ua.incoming("manual"))
    with pytest.raises(WrongState):
        transfers.begin(ringing, ReferRequest(to=TARGET))
    assert referrer.events == []


# --- from the dialplan ---------------------------------------------------------------------------------------------------


def of_dialplan(referrer: Referrer, user: str = "desk", headers: dict[str, str] | None = None) -> Referrer:
    referrer.call = referrer.exchange.registry.call(referrer.ua.incoming(user, headers=headers or {}))
    return referrer


async def test_a_route_transfers_after_its_greeting(referrer: Referrer) -> None:
    desk = of_dialplan(referrer)
    desk.ua.established(desk.call.id)
    await desk.exchange.settle()
    assert desk.ua.commands("hold") == []
    desk.ua.finished(desk.call.id, desk.call.player.queue[0].id)
    desk.held()
    assert desk.ua.commands("transfer") == [(desk.call.id, TARGET, {}, "")]
    desk.told("notify", 200)
    desk.loop.advance(BYE_AFTER_S * 1000)
    (hangup,) = desk.hangups
    assert (hangup.cause, hangup.transfer_result, hangup.sip_code) == ("transferred", "succeeded", 0)


async def test_a_call_of_the_dialplan_ends_with_the_reason_when_its_transfer_fails(referrer: Referrer) -> None:
    desk = of_dialplan(referrer, "silent", {"X-TTS-Transfer": TARGET})
    assert desk.ua.commands("hold") == [], "not before the call is answered"
    desk.ua.established(desk.call.id)
    desk.held()
    desk.told("answer", 202)
    desk.told("notify", 486)
    (hangup,) = desk.hangups
    assert (hangup.cause, hangup.transfer_result, hangup.sip_code) == ("transfer_failed", "busy", 486)
    assert desk.result == ("failed", 486, "busy", UNSET)


async def test_what_is_said_before_the_answer_waits_for_it_to_transfer(referrer: Referrer) -> None:
    desk = of_dialplan(referrer, "ring", {"X-TTS-Transfer": TARGET})
    await desk.exchange.settle()
    desk.ua.finished(desk.call.id, desk.call.player.queue[0].id)
    assert desk.ua.commands("hold") == []
    desk.ua.established(desk.call.id)
    assert desk.ua.commands("hold") == [(desk.call.id, True)]


async def test_a_transfer_of_the_dialplan_is_refused_in_the_answer(referrer: Referrer) -> None:
    desk = of_dialplan(referrer, "greet", {"X-TTS-Transfer": "sip:1@evil.example.com"})
    (hangup,) = desk.hangups
    assert (hangup.sip_code, hangup.cause) == (403, "transfer_not_allowed")
    assert "transfer.allowed" in hangup.reason
    assert desk.events == []


async def test_a_call_of_the_dialplan_that_rings_when_its_server_dies_is_routed_again(referrer: Referrer) -> None:
    desk = of_dialplan(referrer, "ring", {"X-TTS-Transfer": TARGET})
    invite = replace(invite_of(desk.call.id), request_uri="sip:ring@h", headers={"X-TTS-Transfer": TARGET})
    after = adopted(desk, state="invited", held_by="none", invite=invite)
    assert after.ua.commands("hangup") == []
    after.ua.finished(after.call.id, after.call.player.queue[0].id)
    after.ua.established(after.call.id)
    assert after.ua.commands("hold") == [(after.call.id, True)]


# --- attended ------------------------------------------------------------------------------------------------------------


def consulted(referrer: Referrer) -> Call:
    call_id = referrer.ua.incoming("silent", caller='"Anna" <sip:Anna@pbx.example.com>;tag=x')
    referrer.ua.report(messages.CallEstablished(call_id=call_id, sip_call_id="c@d", at_ns=0, tags=("ours", "theirs")))
    return referrer.exchange.registry.call(call_id)


async def test_an_attended_transfer_replaces_the_consulted_call(referrer: Referrer) -> None:
    consult = consulted(referrer)
    referrer.referred(to="", consult=consult, headers={"X-A": "b"})
    ((_, to, headers, _),) = referrer.ua.commands("transfer")
    assert to == "sip:Anna@pbx.example.com"
    assert headers == {"Replaces": "c@d;to-tag=theirs;from-tag=ours", "X-A": "b"}
    referrer.told("notify", 200)
    assert {event["mode"] for event in referrer.events} == {"attended"}
    referrer.loop.advance(BYE_AFTER_S * 1000)
    assert [call_id for call_id, *_ in referrer.ua.commands("hangup")] == [referrer.call.id, consult.id]


async def test_who_is_consulted_has_to_be_on_another_established_call(referrer: Referrer) -> None:
    ringing = referrer.exchange.registry.call(referrer.ua.incoming("manual", caller="<sip:a@pbx.example.com>"))
    for consult in (ringing, referrer.call):
        with pytest.raises(WrongState):
            referrer.transfer(consult=consult)


# --- another server takes the call over ----------------------------------------------------------------------------------


def adopted(referrer: Referrer, *told: tuple[messages.ToldBy, int], **more: Any) -> Referrer:
    """The call with another server, where this was told of the REFER so far."""
    call_id = referrer.call.id
    reports = tuple(
        messages.TransferProgress(call_id=call_id, by=by, sip_code=sip_code, is_last=sip_code >= 200 and by == "notify")
        for by, sip_code in told
    )
    after = Exchange()
    leg = {"held_by": "local", "transfer": reports} | more
    after.ua.report(referrer.exchange.snapshot(call_id, **leg))
    after.registry.incoming.present_adopted()
    found = Referrer.__new__(Referrer)
    found.exchange, found.ua, found.loop = after, after.ua, referrer.loop
    found.call = after.registry.call(call_id)
    return found


async def test_another_server_goes_on_with_a_transfer(referrer: Referrer) -> None:
    referrer.referred(transfer_id="t1", client_state="s")
    referrer.told("answer", 202)
    after = adopted(referrer, ("answer", 202), ("notify", 180))
    assert after.states == ["ringing"]
    after.told("notify", 486)
    assert after.result == ("failed", 486, "busy", UNSET)
    assert {(event["transfer_id"], event["client_state"]) for event in after.events} == {("t1", "s")}
    assert after.ua.commands("hold") == [(after.call.id, False)]


async def test_what_came_while_there_was_no_server_counts(referrer: Referrer) -> None:
    referrer.referred()
    after = adopted(referrer, ("answer", 202), ("notify", 200))
    assert after.result == ("succeeded", 200, None, True)


async def test_a_transfer_that_was_not_sent_has_failed(referrer: Referrer) -> None:
    referrer.transfer()
    referrer.exchange.registry.call(referrer.call.id).keep()
    after = adopted(referrer)
    assert after.result == ("failed", None, "unknown", UNSET)
