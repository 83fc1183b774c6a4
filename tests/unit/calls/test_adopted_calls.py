"""Calls of a server before this one: the record that is kept of each, and how the registry takes them up."""

import dataclasses
from typing import Any

import msgspec
import pytest

from cc_tts.calls.adoption import record as records
from cc_tts.calls.call_state import CallState
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.calls.events import types
from cc_tts.calls.originate import OriginateRequest
from cc_tts.config.schema import UaConfig
from cc_tts.speech.prompt import Prompt, PromptDefaults, TextContent
from cc_tts.ua import messages
from tests.fakes.exchange import Exchange
from tests.fakes.fake_ua import invite_of

pytestmark = pytest.mark.unit

SECRET = "The code is four seven one one"


def said(text: str = SECRET, **more: Any) -> Prompt:
    return Prompt(content=TextContent(text), **more)


def record_of(before: Exchange, call_id: str) -> records.CallRecord:
    record = records.decode(before.ua.records[call_id])
    assert record is not None
    return record


@pytest.fixture
def before() -> Exchange:
    return Exchange()


async def test_a_record_has_neither_texts_nor_digits(before: Exchange) -> None:
    headers = {"X-TTS-Text": "Hidden%20words", "X-Queue": "sales"}
    call_id = before.talking("silent", headers=headers)
    call = before.registry.call(call_id)
    call.speak(said())
    call.gather(GatherRequest(prompt=said("Hidden question"), invalid_prompt=said("Hidden complaint")))
    before.ua.digit(call_id, "7")
    await before.settle()
    record = record_of(before, call_id)
    shown = str(msgspec.to_builtins(record))
    assert SECRET not in shown
    assert "idden" not in shown
    assert record.headers == {"X-Queue": "sales"}
    assert all(each.text_chars for each in record.utterances)
    assert record.gather is not None
    assert "digits" not in msgspec.to_builtins(record.gather)


async def test_a_record_is_sent_when_it_has_changed_and_only_then(before: Exchange) -> None:
    call_id = before.talking()
    call = before.registry.call(call_id)
    sent = before.ua.records[call_id]
    before.ua.digit(call_id, "7")
    assert before.ua.records[call_id] is sent, "a key is nothing that lasts"
    call.update(defaults=PromptDefaults(speed=1.5), metadata={"a": "b"}, client_state="c")
    record = record_of(before, call_id)
    assert (record.defaults.speed, record.metadata, record.client_state) == (1.5, {"a": "b"}, "c")


async def test_what_is_no_record_of_this_version_is_none(before: Exchange) -> None:
    call_id = before.talking()
    encoded = before.ua.records[call_id]
    record = record_of(before, call_id)
    newer = msgspec.structs.replace(record, version=records.VERSION + 1)
    for useless in (b"", b"\xff" * 40, encoded[:-1], msgspec.msgpack.encode([1]), msgspec.msgpack.encode(newer)):
        assert records.decode(useless) is None
    later = msgspec.msgpack.decode(encoded) | {"a_field_of_a_later_version": 1}
    assert records.decode(msgspec.msgpack.encode(later)) == record


async def test_a_record_is_bounded(before: Exchange) -> None:
    call_id = before.talking(headers={f"X-{number}": "a" * 1000 for number in range(300)})
    assert len(before.ua.records[call_id]) < records.MAX_RECORD_BYTES


async def test_of_a_long_queue_the_next_prompts_are_kept(before: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_UTTERANCES", 2)
    call_id = before.talking("silent")
    said_first = [before.registry.call(call_id).speak(said()).id for _ in range(3)][:2]
    record = record_of(before, call_id)
    assert [each.id for each in record.utterances] == said_first


async def test_without_a_grace_nothing_is_kept() -> None:
    exchange = Exchange()
    services = exchange.services
    services.config = dataclasses.replace(services.config, ua=UaConfig(orphan_grace_ms=0))
    exchange.talking()
    assert exchange.ua.records == {}


async def test_an_established_call_is_as_it_was(before: Exchange) -> None:
    call_id = before.talking()
    call = before.registry.call(call_id)
    call.update(defaults=PromptDefaults(voice="de"), metadata={"a": "b"}, client_state="c")
    call.set_paused(paused=True)
    after = Exchange.adopted(before.snapshot(call_id, sip_code=180, held_by="remote"))
    found = after.registry.call(call_id)
    assert (found.state, found.held, found.paused) == (CallState.ESTABLISHED, True, True)
    for name in ("caller", "callee", "sip_call_id", "headers", "defaults", "metadata", "client_state", "created_at_s"):
        assert getattr(found, name) == getattr(call, name), name
    assert (found.codec, found.clock_rate_hz, found.srtp) == ("PCMU", 8000, False)
    assert found.answered_at_s == pytest.approx(after.clock.wall_s() - 60, abs=1)
    assert after.kinds(call_id) == ["call.adopted"]
    (event,) = [each for each in after.seen if each.call_id == call_id]
    assert isinstance(event.data, types.CallAdopted)
    assert (event.data.state, event.data.client_state, event.data.metadata) == ("established", "c", {"a": "b"})
    assert after.sample("cctts_calls_active") == 1
    found.set_paused(paused=False)
    found.speak(said())
    await after.settle()
    assert after.ua.commands("begin")
    after.ua.ended(call_id)
    assert found.ending is not None
    assert found.ending.reason == "remote_hangup"


@pytest.mark.parametrize(
    ("is_played", "then", "unattended", "hangs_up"),
    [
        (True, "hangup", False, True),
        (True, "stay", True, False),
        (False, "hangup", False, False),
        (False, "hangup", True, True),
    ],
)
async def test_a_prompt_that_was_to_be_the_last(
    before: Exchange, is_played: bool, then: Any, unattended: bool, hangs_up: bool
) -> None:
    """It still is if the line has of it, or nobody is there to say it again."""
    call_id = before.talking()
    utterance = before.registry.call(call_id).speak(said(then=then, unattended=unattended))
    utterances = ((utterance.id, 300.0),) if is_played else ()
    after = Exchange.adopted(before.snapshot(call_id, utterances=utterances))
    call = after.registry.call(call_id)
    assert list(call.utterances) == [utterance.id]
    found = after.registry.services.utterances.get(utterance.id)
    assert found.text_chars == utterance.text_chars
    if is_played:
        assert (found.state, found.played_ms) == ("in_progress", 300.0)
        assert after.ua.commands("hangup") == []
        after.ua.finished(call_id, utterance.id)
    assert found.is_complete
    assert found.error is not None
    assert (found.completion_cause, found.error.code) == ("error", "server_restarted")
    assert bool(after.ua.commands("hangup")) is hangs_up


async def test_prompts_behind_one_that_is_played_wait_for_their_turn(before: Exchange) -> None:
    call_id = before.talking()
    call = before.registry.call(call_id)
    first, second = call.speak(said()), call.speak(said(then="hangup", unattended=True))
    after = Exchange.adopted(before.snapshot(call_id, utterances=((first.id, 20.0),)))
    assert [after.registry.services.utterances.get(each).state for each in (first.id, second.id)] == [
        "in_progress",
        "pending",
    ]
    assert after.ua.commands("hangup") == []
    after.ua.finished(call_id, first.id)
    assert after.registry.services.utterances.get(second.id).is_complete
    assert len(after.ua.commands("hangup")) == 1


async def test_what_is_said_next_follows_what_is_played(before: Exchange) -> None:
    call_id = before.talking()
    earlier = before.registry.call(call_id).speak(said())
    after = Exchange.adopted(before.snapshot(call_id, utterances=((earlier.id, 20.0),)))
    now = after.registry.call(call_id).speak(said("Again"))
    await after.settle()
    after.ua.finished(call_id, earlier.id)
    await after.settle()
    after.ua.finished(call_id, now.id)
    assert now.completion_cause == "normal"


async def test_a_gather_is_broken_off_and_its_keys_stay_hidden(before: Exchange) -> None:
    call_id = before.talking()
    before.registry.call(call_id).gather(
        GatherRequest(gather_id="pin", sensitive=True, client_state="s", then="stay", prompt=None)
    )
    after = Exchange.adopted(before.snapshot(call_id))
    (event,) = [each for each in after.seen if each.type == "call.gather_complete"]
    data: Any = event.data
    assert (data.gather_id, data.result, data.valid, data.digits) == ("pin", "server_restarted", False, "")
    assert data.client_state == "s"
    after.ua.digit(call_id, "7")
    call = after.registry.call(call_id)
    call.gather(GatherRequest(flush_buffer=True))
    after.ua.digit(call_id, "8", at_ns=1)
    assert [each.data.digit for each in after.seen if each.type == "call.dtmf"] == ["x", "8"]  # type: ignore[attr-defined]


async def test_a_gather_that_was_to_end_the_call_does(before: Exchange) -> None:
    call_id = before.talking()
    before.registry.call(call_id).gather(GatherRequest(then="hangup"))
    after = Exchange.adopted(before.snapshot(call_id))
    assert len(after.ua.commands("hangup")) == 1
    assert after.ua.causes == ["server_restarted"]


async def test_a_call_that_waits_for_its_answer_is_routed_anew_once_the_server_can_speak(before: Exchange) -> None:
    call_id = before.ua.incoming("ring")
    after = Exchange()
    after.ua.report(before.snapshot(call_id, "invited", sip_code=180, media=None, invite=invite_of(call_id, "ring")))
    call = after.registry.call(call_id)
    assert (call.state, call.waits_for_answer) == (CallState.EARLY, True)
    assert after.ua.asked == [], "the engine is still loading"
    assert [each.completion_cause for each in call.utterances.values()] == ["error"]
    after.registry.incoming.present_adopted()
    assert after.kinds(call_id)[-3:] == ["call.adopted", "call.incoming", "speak.queued"]
    assert after.ua.commands("ring") == [(call_id, False)]
    assert after.ua.commands("hangup") == []
    after.registry.incoming.present_adopted()
    assert after.kinds(call_id).count("call.adopted") == 1


async def test_a_call_that_no_server_has_seen_is_routed_as_well(before: Exchange) -> None:
    after = Exchange.adopted(before.snapshot("in9", "invited", media=None))
    assert after.ua.commands("answer") == [("in9",)]
    assert after.kinds("in9")[:2] == ["call.adopted", "call.incoming"]


async def test_a_call_that_was_answered_waits_for_its_ack(before: Exchange) -> None:
    call_id = before.ua.incoming("greet")
    after = Exchange.adopted(before.snapshot(call_id, "answered"))
    call = after.registry.call(call_id)
    assert (call.state, call.waits_for_answer) == (CallState.INCOMING, False)
    assert "call.incoming" not in after.kinds(call_id)
    after.ua.established(call_id)
    assert call.state is CallState.ESTABLISHED


async def test_what_the_leg_has_of_a_prompt_is_heard_after_the_ack_and_dropped_where_it_is_said_again(
    before: Exchange,
) -> None:
    answered, ringing = before.ua.incoming("bye"), before.ua.incoming("ring")
    await before.settle()
    (kept,), (dropped,) = (before.registry.call(each).utterances for each in (answered, ringing))
    after = Exchange.adopted(
        before.snapshot(answered, "answered", invite=invite_of(answered, "bye"), utterances=((kept, 0.0),)),
        before.snapshot(
            ringing, "invited", media=None, invite=invite_of(ringing, "ring"), utterances=((dropped, 0.0),)
        ),
    )
    assert after.ua.commands("cut") == [(ringing, dropped)]
    after.ua.finished(ringing, dropped, cut=True)
    await after.settle()
    assert [each.completion_cause for each in after.registry.call(ringing).utterances.values()] == ["error", None]
    assert after.ua.commands("hangup") == []
    after.ua.established(answered)
    after.ua.finished(answered, kept)
    assert [each[0] for each in after.ua.commands("hangup")] == [answered]


async def test_a_call_that_is_placed_goes_on_ringing_for_as_long_as_it_would_have(before: Exchange) -> None:
    call = await before.registry.originate(OriginateRequest(to="sip:bob@127.0.0.1", call_id="out", timeout_s=70.0))
    after = Exchange.adopted(before.snapshot("out", "invited", sip_code=183, invite=None, media=None))
    found = after.registry.call("out")
    assert (found.state, found.direction, found.callee) == (CallState.EARLY, "outbound", call.callee)
    assert found.timer.is_set
    assert found.no_answer_at_s == call.no_answer_at_s
    after.ua.established("out")
    assert found.state is CallState.ESTABLISHED


async def test_a_call_that_has_ended_meanwhile_ends_with_its_reason(before: Exchange) -> None:
    call_id = before.talking()
    before.registry.call(call_id).hangup()
    after = Exchange()
    after.ua.report(before.snapshot(call_id))
    after.ua.ended(call_id, by="local")
    after.registry.incoming.present_adopted()
    assert after.kinds(call_id) == ["call.terminated"], "there is nothing to take up"
    assert after.ended_as(call_id) == ("completed", "local_hangup")


async def test_a_call_of_which_nothing_is_known_is_ended(before: Exchange) -> None:
    after = Exchange.adopted(before.snapshot("lost", record=b"?"))
    assert after.registry.calls() == []
    assert [each[0] for each in after.ua.commands("hangup")] == ["lost"]


async def test_an_application_that_is_dialled_is_dialled_again(before: Exchange) -> None:
    call_id = before.ua.incoming("app")
    before.ua.established(call_id)
    after = Exchange.adopted(before.snapshot(call_id))
    ((call, url, dialect, on_failed),) = after.dialled
    assert (call.id, url, dialect) == (call_id, "ws://127.0.0.1:9/call", "cc-tts")
    on_failed()
    assert len(after.ua.commands("hangup")) == 1


async def test_readers_of_events_go_on_with_the_first_of_the_new_run(before: Exchange) -> None:
    call_id = before.talking()
    last = before.events.last_id
    after = Exchange.adopted(before.snapshot(call_id))
    with_missed = after.events.subscribe(since=last)
    assert (await anext(aiter(with_missed))).type == "call.adopted"
    assert not with_missed.has_queued


async def test_the_user_agent_dies_while_a_call_is_taken_up(before: Exchange) -> None:
    call_id = before.talking()
    utterance = before.registry.call(call_id).speak(said(then="hangup", unattended=True))
    after = Exchange()
    after.ua.is_ready = False
    after.ua.report(before.snapshot(call_id))
    after.registry.call(call_id).hangup()
    after.ua.active_calls.add(call_id)
    after.ua.die()
    assert after.registry.services.utterances.get(utterance.id).is_complete
    assert after.registry.call(call_id).state is CallState.TERMINATED


@pytest.mark.parametrize(
    ("by", "reason"), [("remote", "remote_hangup"), ("local", "server_gone"), ("rtp_inactivity", "rtp_inactivity")]
)
async def test_a_call_that_ended_without_a_server_is_accounted_for(
    before: Exchange, by: messages.EndedBy, reason: str
) -> None:
    """Its UA process is gone too, and the next one is not up yet."""
    call_id = before.talking("silent")
    utterance = before.registry.call(call_id).speak(said())
    before.clock.advance(7000)
    ended_ns = before.clock.now_ns()
    after = Exchange()
    after.clock.advance(60_000)
    after.ua.is_ready = False
    lines: list[Any] = []
    after.services.accounting.add = lambda line, **_: lines.append(line)  # type: ignore[method-assign]
    after.ua.report(before.snapshot(call_id, invite=None, established_ns=ended_ns - 7_000_000_000))
    after.ua.ended(call_id, by=by, at_ns=ended_ns)
    spoken, ended = lines
    assert (spoken.utterance_id, spoken.characters, spoken.reason) == (utterance.id, len(SECRET), "error")
    assert (ended.call_id, ended.sip_call_id, ended.route) == (call_id, f"sip-{call_id}", "silent")
    assert (ended.duration_ms, ended.reason) == (7000, reason)
    assert after.registry.num_calls == 0
    after.registry.incoming.present_adopted()
    assert after.kinds(call_id)[-1] == "call.terminated"


async def test_the_user_agent_may_forget_an_end_that_is_accounted_for(
    before: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_id = before.talking("silent")
    notes: list[Any] = []
    monkeypatch.setattr(before.services.accounting, "add", lambda _line, on_written: notes.append(on_written))
    before.ua.ended(call_id)
    assert before.ua.noted == [], "it is not written yet"
    notes[0]()
    assert before.ua.noted == [call_id]
    after = Exchange.adopted(before.snapshot("strange", record=b"of another version"))
    after.ua.ended("strange")
    assert after.ua.noted == ["strange"], "it will not be known better later"


async def test_a_gather_and_a_call_that_rang_end_without_a_server_too(before: Exchange) -> None:
    asked, ringing = before.talking("silent"), before.ua.incoming("manual")
    before.registry.call(asked).gather(GatherRequest(then="hangup"))
    after = Exchange()
    after.clock.advance(60_000)
    after.ua.is_ready = False
    after.ua.report(before.snapshot(asked, invite=None))
    after.ua.ended(asked)
    after.ua.report(before.snapshot(ringing, "invited", invite=None, media=None, sip_code=180))
    after.ua.ended(ringing, sip_code=487)
    assert [after.registry.call(each).state for each in (asked, ringing)] == [CallState.TERMINATED] * 2
    assert after.ended_as(ringing) == ("unanswered", "cancelled")
