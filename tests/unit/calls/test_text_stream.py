"""A client's stream of text into a call, with real text rules and playout buffers, in virtual time."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, cast

import msgspec
import pytest

from cc_tts.calls.call import Call
from cc_tts.calls.input.stream import INTERRUPTED_QUIET_S
from cc_tts.calls.input.text import TextStream
from cc_tts.calls.input.text_messages import StreamMessage
from cc_tts.calls.prompts.utterance import CompletionCause
from cc_tts.config.schema import StreamConfig
from cc_tts.errors import CapacityExceeded, DuplicateId, EngineFailed, TextTooLong, WrongState
from cc_tts.speech.prompt import Prompt, TextContent
from tests.fakes.live_call import LiveCall
from tests.support.virtual_time import virtual_time

pytestmark = pytest.mark.unit

TOKEN_S = 0.015
ANSWER = "Your balance is **twelve dollars**, and 50 cents. Is there *anything* else, that I can do for you today? "


class Client:
    """One client: what it was told, and its stream."""

    def __init__(self, call: Call, *, has_words: bool = False) -> None:
        self.told: list[dict[str, Any]] = []
        self.is_call_over = False
        self.stream = TextStream(call, send=self._take, on_call_ended=self._call_ended, has_words=has_words)

    def _take(self, message: StreamMessage) -> None:
        self.told.append(msgspec.to_builtins(message))

    def _call_ended(self) -> None:
        self.is_call_over = True

    def kinds(self, *leaving_out: str) -> list[str]:
        return [each["type"] for each in self.told if each["type"] not in leaving_out]

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.told if each["type"] == kind]

    def only(self, kind: str) -> dict[str, Any]:
        (found,) = self.all(kind)
        return found

    def start(self, **prompt: Any) -> None:
        self.stream.start(Prompt(content=TextContent(""), **prompt))

    async def write(self, text: str, *, size: int = 4, every_s: float = TOKEN_S) -> None:
        for begin in range(0, len(text), size):
            self.stream.tokens(text[begin : begin + size])
            await asyncio.sleep(every_s)


class Talk(LiveCall):
    def __init__(self, **stream: Any) -> None:
        super().__init__(max_text_chars=1000, stream=StreamConfig(**stream))

    async def end(self, client: Client) -> None:
        """The client's text is whole; wait until all was said."""
        client.stream.end()
        await self.until_quiet()


def live(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in virtual time with a new ``talk``, and with a ``client`` of it if it asks for one."""
    parameters = inspect.signature(test).parameters

    async def run(**given: Any) -> None:
        async with Talk.made(max_buffered_chars=200) as talk:
            await test(talk=talk, **given | ({"client": Client(talk.call)} if "client" in parameters else {}))

    left = [each for name, each in parameters.items() if name not in ("talk", "client")]
    return virtual_time(functools.wraps(test)(run), left)


@live
async def test_an_answer_is_spoken_while_it_is_written(talk: Talk, client: Client) -> None:
    await client.write(ANSWER)
    begun = client.only("speak.started")
    assert 0 <= begun["time_to_first_audio_ms"] <= 60, "from the clause that was complete"
    assert begun["time_from_first_token_ms"] > begun["time_to_first_audio_ms"]
    await talk.end(client)
    complete = client.only("speak.complete")
    assert (complete["spoken_text"], complete["completion_cause"]) == (ANSWER, "normal")
    assert talk.leg.underruns == 0
    said = [text for stream in talk.exchange.engine.streams for text in stream.pushed]
    assert said == [
        "Your balance is twelve dollars,",
        "and fifty cents.",
        "Is there anything else,",
        "that I can do for you today?",
    ]
    assert client.kinds() == ["speak.started", "speak.complete"]


@live
async def test_the_events_of_the_call_are_those_of_any_prompt(talk: Talk, client: Client) -> None:
    client.start(utterance_id="u7", client_state="turn 3")
    client.stream.tokens("Hello.")
    await talk.end(client)
    events = [event for event in talk.exchange.seen if event.type.startswith("speak.")]
    assert [event.type for event in events] == ["speak.queued", "speak.started", "speak.complete"]
    assert {cast("Any", event.data).utterance_id for event in events} == {"u7"}
    assert client.only("speak.complete")["client_state"] == "turn 3"
    utterance = talk.call.utterances["u7"]
    assert (utterance.text_chars, utterance.voice, utterance.spoken_text) == (6, "en-us", "Hello.")


@live
async def test_waiting_for_the_model_is_silence_and_no_underrun(talk: Talk, client: Client) -> None:
    await client.write("The first sentence is here. ")
    await asyncio.sleep(5)
    await client.write("And after a pause, the second. ")
    await talk.end(client)
    assert talk.leg.underruns == 0
    assert client.only("speak.complete")["spoken_text"] == "The first sentence is here. And after a pause, the second. "
    assert talk.call.services.threshold.current_ms == talk.call.services.threshold.floor_ms


@live
async def test_a_number_in_two_tokens_is_one_number(talk: Talk, client: Client) -> None:
    for token in ("Your balance is 12.", "50", " dollars, and you have 1", "23", " points. ", "Goodbye. "):
        client.stream.tokens(token)
        await asyncio.sleep(0.1)
    await talk.end(client)
    said = " ".join(text for stream in talk.exchange.engine.streams for text in stream.pushed)
    assert (
        "twelve point five oh dollars" in said
        or "twelve point five zero dollars" in said
        or "twelve dollars and fifty" in said
    ), said
    assert "one hundred twenty-three points" in said, said


@live
async def test_flush_speaks_what_there_is_and_the_utterance_stays_open(talk: Talk, client: Client) -> None:
    client.stream.tokens("One moment")
    await asyncio.sleep(0.1)
    assert not talk.exchange.engine.streams
    client.stream.flush()
    await talk.until(lambda: client.all("speak.started"))
    client.stream.tokens(" please")
    await talk.end(client)
    assert client.only("speak.complete")["spoken_text"] == "One moment please"
    assert len(talk.call.utterances) == 1


@live
async def test_what_is_idle_is_spoken(talk: Talk, client: Client) -> None:
    client.stream.tokens("I will look into that for")
    await asyncio.sleep(0.45)
    assert [stream.pushed for stream in talk.exchange.engine.streams] == [["I will look into that"]]
    await asyncio.sleep(0.6)
    assert [stream.pushed for stream in talk.exchange.engine.streams][1:] == [["for"]]


@live
async def test_white_space_alone_opens_nothing_and_is_kept(talk: Talk, client: Client) -> None:
    client.stream.tokens(" \n")
    client.stream.flush()
    client.stream.end()
    assert not talk.call.utterances
    client.stream.tokens("\n")
    client.stream.tokens("Hello.")
    await talk.end(client)
    assert client.only("speak.complete")["spoken_text"] == "\nHello."


@pytest.mark.parametrize(
    "text", ["😀 ", "<br/>", "**", "---\n", "…", "<think>They want it.</think>", "{name}", "\ue000"]
)
@live
async def test_a_text_of_which_nothing_is_spoken_is_no_success(talk: Talk, client: Client, text: str) -> None:
    client.start()
    client.stream.tokens(text)
    client.stream.mark("m")
    await talk.end(client)
    complete = client.only("speak.complete")
    assert (complete["completion_cause"], complete["error"]) == ("error", "nothing_to_say")
    assert (complete["played_ms"], complete["spoken_text"], complete["pending_text"]) == (0, "", text)
    assert client.only("mark")["name"] == "m"


@live
async def test_an_utterance_without_text_completes(talk: Talk, client: Client) -> None:
    client.start()
    client.stream.mark("m")
    await talk.end(client)
    complete = client.only("speak.complete")
    assert (complete["completion_cause"], complete["played_ms"]) == ("normal", 0)
    assert client.only("mark")["name"] == "m"


@live
async def test_what_cannot_be_said_belongs_to_the_text_all_the_same(talk: Talk, client: Client) -> None:
    text = "First. 😀 😀\n---\nSecond. <br/> Third."
    await client.write(text, size=1, every_s=0.2)
    await talk.end(client)
    assert client.only("speak.complete")["spoken_text"] == text


@live
async def test_spoken_and_pending_are_what_was_sent(talk: Talk) -> None:
    for number in range(12):
        client = Client(talk.call)
        await client.write(ANSWER, every_s=0.01)
        await asyncio.sleep(0.35 * number)
        client.stream.clear()
        await talk.until_quiet()
        interrupted = client.only("speak.interrupted")
        assert interrupted["by"] == "clear"
        assert interrupted["spoken_text"] + interrupted["pending_text"] == ANSWER
        client.stream.close()


@live
async def test_clear_in_every_state(talk: Talk, client: Client) -> None:
    client.stream.clear()  # nothing there
    client.stream.tokens(" ")
    client.stream.clear()  # blank
    client.start()
    client.stream.clear()  # open, without text
    client.stream.tokens("Half a")
    client.stream.clear()  # not begun
    client.stream.tokens("A whole sentence. ")
    client.stream.end()
    client.stream.clear()  # ended, before its audio
    client.stream.clear()  # being cut
    await talk.until_quiet()
    assert [each["spoken_text"] for each in client.all("speak.interrupted")] == ["", "", ""]
    pending = [each["pending_text"] for each in client.all("speak.interrupted")]
    assert sorted(pending) == ["", "A whole sentence. ", "Half a"]
    client.stream.tokens("Hello.")
    await talk.end(client)
    assert client.only("speak.complete")["spoken_text"] == "Hello."
    client.stream.clear()  # heard
    assert len(client.told) == 5


@live
async def test_a_key_interrupts_and_the_rest_of_the_answer_is_not_spoken(talk: Talk, client: Client) -> None:
    writing = asyncio.create_task(client.write("A long answer that goes on, and on, and on, and will not end. " * 3))
    await talk.until(lambda: client.all("speak.started"))
    talk.ua.digit(talk.call.id, at_ns=talk.clock.now_ns())
    await writing
    await asyncio.sleep(0.1)
    assert client.only("speak.interrupted")["by"] == "dtmf"
    assert {each["status"] for each in client.all("tokens.result")} == {"interrupted"}
    assert len(talk.call.utterances) == 1
    await asyncio.sleep(INTERRUPTED_QUIET_S)
    client.stream.tokens("Another answer. ")
    await talk.end(client)
    assert client.only("speak.complete")["spoken_text"] == "Another answer. "


@pytest.mark.parametrize("how", ["start", "end", "clear"])
@live
async def test_after_an_interruption_the_client_may_go_on_at_once(talk: Talk, client: Client, how: str) -> None:
    await client.write("An answer that is cut off. And it is long. ")
    await talk.call.stop("all")
    assert client.only("speak.interrupted")["by"] == "stop"
    client.stream.tokens("Lost.", 1)
    assert client.only("tokens.result") == {
        "type": "tokens.result",
        "id": 1,
        "status": "interrupted",
        "buffered_chars": 0,
    }
    match how:
        case "start":
            client.start()
        case "end":
            client.stream.end()
        case "clear":
            client.stream.clear()
    client.stream.tokens("Spoken.", 2)
    await talk.end(client)
    assert client.only("speak.complete")["spoken_text"] == "Spoken."
    assert client.all("tokens.result")[-1]["status"] == "ok"


@live
async def test_a_prompt_that_replaces_interrupts(talk: Talk, client: Client) -> None:
    await client.write("An answer that is replaced. And it is long. ")
    talk.call.speak(Prompt(content=TextContent("Attention please."), queue="replace"))
    await talk.until_quiet()
    assert client.only("speak.interrupted")["by"] == "replace"
    assert len(talk.call.utterances) == 2


@live
async def test_two_streams_take_turns_by_utterance(talk: Talk) -> None:
    one, two = Client(talk.call), Client(talk.call)
    for _ in range(2):
        writings = [one.write("From the first of them. "), two.write("And from the second. ")]
        await asyncio.gather(*writings)
        one.stream.end()
        two.stream.end()
    await talk.until_quiet()
    assert [each["spoken_text"] for each in one.all("speak.complete")] == ["From the first of them. "] * 2
    assert [each["spoken_text"] for each in two.all("speak.complete")] == ["And from the second. "] * 2
    order = [cast("Any", event.data).spoken_text for event in talk.exchange.seen if event.type == "speak.complete"]
    assert order == ["From the first of them. ", "And from the second. "] * 2
    one.stream.tokens("Only mine is cleared. ")
    two.stream.tokens("This one is heard. ")
    one.stream.clear()
    two.stream.end()
    await talk.until_quiet()
    assert len(one.all("speak.interrupted")) == 1
    assert two.told[-1]["spoken_text"] == "This one is heard. "


@live
async def test_marks_are_reached_where_they_stand(talk: Talk, client: Client) -> None:
    client.stream.mark("nothing yet")
    client.start()
    client.stream.mark("begin")
    client.stream.tokens("One two three. ")
    client.stream.mark("middle")
    client.stream.tokens("Four five six. ")
    client.stream.mark("end")
    client.stream.flush()
    await talk.until(lambda: len(client.all("mark")) == 4)
    assert talk.call.player.queue, "it is still open"
    at_ms = [mark["played_ms"] for mark in client.all("mark")]
    assert [mark["name"] for mark in client.all("mark")] == ["nothing yet", "begin", "middle", "end"]
    assert at_ms[:2] == [0, 0]
    assert 0 < at_ms[2] < at_ms[3]
    client.stream.mark("behind")
    await talk.until(lambda: len(client.all("mark")) == 5)
    client.stream.end()
    client.stream.mark("last")
    await talk.until_quiet()
    assert [mark["name"] for mark in client.all("mark")][4:] == ["behind", "last"]
    assert client.told[-1]["type"] == "speak.complete"


@live
async def test_a_mark_behind_an_utterance_whose_text_was_all_taken(talk: Talk, client: Client) -> None:
    client.stream.tokens("One two three. ")
    client.stream.end()
    await talk.until(lambda: client.all("speak.started"))
    client.stream.mark("late")
    await talk.until_quiet()
    mark, complete = client.only("mark"), client.only("speak.complete")
    assert mark["played_ms"] == pytest.approx(complete["played_ms"], abs=1)


@live
async def test_too_many_marks_are_refused(talk: Talk, client: Client) -> None:
    client.start()
    with pytest.raises(WrongState, match="1000 marks"):
        for number in range(2000):
            client.stream.tokens("a")
            client.stream.mark(str(number))


@live
async def test_words_are_told_as_they_are_heard(talk: Talk) -> None:
    client = Client(talk.call, has_words=True)
    await client.write("Hello there, this is a test. ")
    await asyncio.sleep(3)
    await client.write("It has two sentences. ")
    await talk.end(client)
    words = [word for each in client.all("words") for word in each["words"]]
    assert " ".join(word["text"] for word in words) == "Hello there, this is a test. It has two sentences."
    assert [word["start_ms"] for word in words] == sorted(word["start_ms"] for word in words)
    assert all(word["start_ms"] <= word["end_ms"] for word in words)


@live
async def test_back_pressure_loses_nothing_and_is_bounded(talk: Talk, client: Client) -> None:
    """100 tokens a second for ten seconds into a line that speaks a fifth of that."""
    tokens = [f"word{number} " + ("" if number % 9 else "end. ") for number in range(1000)]
    waiting, highest = list(enumerate(tokens)), 0
    is_paused, num_told = False, 0
    while waiting:
        for message in client.told[num_told:]:
            is_paused = {"paused": True, "resumed": False}.get(message["type"], is_paused)
            assert message.get("status") != "full", "it does as it is told"
        num_told = len(client.told)
        if not is_paused:
            number, token = waiting.pop(0)
            client.stream.tokens(token, number)
        highest = max(highest, client.stream.num_pending)
        await asyncio.sleep(0.01)
    client.stream.end()
    await talk.until(lambda: not talk.call.player.queue, timeout_s=10_000)
    assert client.only("speak.complete")["spoken_text"] == "".join(tokens)
    assert highest < 200 + 20
    assert len(client.all("paused")) == len(client.all("resumed")) > 10
    assert len(client.all("tokens.result")) == 1
    assert talk.leg.underruns == 0


@live
async def test_a_client_that_does_not_heed_paused_is_told_what_was_not_taken(talk: Talk, client: Client) -> None:
    client.stream.tokens("very " * 50, 1)
    client.stream.tokens("One more. ", 2)
    client.stream.tokens("Too much. ", 3)
    client.stream.tokens("Too much, without an id. ")
    assert client.kinds() == ["tokens.result", "paused", "tokens.result", "tokens.result"]
    results = [(each.get("id"), each["status"]) for each in client.all("tokens.result")]
    assert results == [(1, "ok"), (3, "full"), (None, "full")]
    await talk.until(lambda: client.all("resumed"))
    client.stream.tokens("Too much. ", 3)
    assert client.told[-1]["status"] == "ok"
    await talk.end(client)
    assert client.only("speak.complete")["spoken_text"] == "very " * 50 + "One more. Too much. "


@live
async def test_clear_ends_the_pause(talk: Talk, client: Client) -> None:
    client.stream.tokens("a" * 250)
    client.stream.clear()
    assert client.kinds() == ["paused", "speak.interrupted", "resumed"] or client.kinds() == ["paused"]
    await talk.until(lambda: client.all("resumed"))


@live
async def test_an_utterance_that_gets_no_text_lets_the_next_prompt_through(talk: Talk, client: Client) -> None:
    client.stream.tokens("Hello there. And")
    talk.call.speak(Prompt(content=TextContent("The next one.")))
    await asyncio.sleep(talk.exchange.config.stream.idle_timeout_s + 5)
    await talk.until_quiet()
    assert client.only("speak.complete")["spoken_text"] == "Hello there. And"
    client.stream.tokens("Again.")
    await talk.end(client)
    assert [each["spoken_text"] for each in client.all("speak.complete")] == ["Hello there. And", "Again."]


@live
async def test_a_client_that_is_gone_is_heard_out(talk: Talk, client: Client) -> None:
    client.stream.tokens("A sentence that was not fin")
    client.stream.close()
    await talk.until_quiet()
    (utterance,) = talk.call.utterances.values()
    assert (utterance.completion_cause, utterance.spoken_text) == ("normal", "A sentence that was not fin")
    assert not talk.call.followers


@live
async def test_hold_and_pause_stop_the_line_and_text_is_taken(talk: Talk, client: Client) -> None:
    await client.write("A first sentence of it. ")
    talk.ua.legs[talk.call.id].is_held = True
    before = bytes(talk.ua.legs[talk.call.id].heard)
    await client.write("A second one. ")
    client.stream.end()
    await asyncio.sleep(10)
    assert talk.ua.legs[talk.call.id].heard == before
    talk.ua.legs[talk.call.id].is_held = False
    talk.call.set_paused(paused=True)
    await asyncio.sleep(1)
    talk.call.set_paused(paused=False)
    await talk.until_quiet()
    assert client.only("speak.complete")["spoken_text"] == "A first sentence of it. A second one. "


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.5, 2.0])
@pytest.mark.parametrize("how", ["hang-up", "ua killed"])
@live
async def test_the_end_of_the_call_at_any_time(talk: Talk, client: Client, after_s: float, how: str) -> None:
    writing = asyncio.create_task(client.write(ANSWER))
    await asyncio.sleep(after_s)
    if how == "hang-up":
        talk.ua.ended(talk.call.id)
    else:
        talk.ua.die()
    assert client.is_call_over
    with pytest.raises(WrongState):
        await writing
        client.stream.end()
        client.stream.tokens("More. ")
    sent = ANSWER[: len(ANSWER)]
    for interrupted in client.all("speak.interrupted"):
        assert interrupted["by"] == "call_ended"
        assert sent.startswith(interrupted["spoken_text"] + interrupted["pending_text"])
    assert len(client.all("speak.interrupted")) == 1
    with pytest.raises(WrongState):
        Client(talk.call)


@live
async def test_an_engine_that_breaks_off(talk: Talk, client: Client) -> None:
    talk.exchange.engine.error = EngineFailed("the secret of it")
    await client.write("This cannot be said. And more. ")
    await talk.until_quiet()
    complete = client.only("speak.complete")
    assert (complete["completion_cause"], complete["error"]) == ("error", "engine_failed")
    assert (
        complete["spoken_text"] + complete["pending_text"]
        == "This cannot be said. And more. "[: len(complete["pending_text"])]
    )


@live
async def test_what_is_refused(talk: Talk, client: Client) -> None:
    client.start(utterance_id="u1")
    with pytest.raises(DuplicateId):
        client.start(utterance_id="u1")
    with pytest.raises(TextTooLong, match=r"tts\.max_text_chars"):
        client.stream.tokens("a" * 1001)
    client.stream.tokens("Spoken with defaults. ")
    await talk.end(client)
    assert len(client.all("speak.complete")) == 2


@live
async def test_no_more_streams_than_allowed(talk: Talk) -> None:
    clients = [Client(talk.call) for _ in range(4)]
    with pytest.raises(CapacityExceeded, match=r"stream\.max_per_call"):
        Client(talk.call)
    clients[0].stream.close()
    Client(talk.call)


@live
async def test_an_utterance_that_ends_the_call(talk: Talk, client: Client) -> None:
    client.start(then="hangup")
    await client.write("Goodbye. ")
    assert not talk.ua.commands("hangup")
    client.stream.end()
    await talk.until(lambda: talk.ua.commands("hangup"))


@live
async def test_text_for_a_call_that_is_not_answered_yet_waits_for_the_answer(talk: Talk) -> None:
    call = talk.exchange.registry.call(talk.ua.incoming("manual"))
    client = Client(call)
    await client.write("Good morning. ")
    await asyncio.sleep(3)
    assert not client.told
    call.answer()
    talk.ua.established(call.id, at_ns=talk.clock.now_ns())
    client.stream.end()
    await talk.until(lambda: not call.player.queue)
    begun, complete = client.told
    assert 0 <= begun["time_to_first_audio_ms"] <= 60, "from the answer"
    assert complete["spoken_text"] == "Good morning. "
    call.player.close(CompletionCause.CALL_ENDED)
