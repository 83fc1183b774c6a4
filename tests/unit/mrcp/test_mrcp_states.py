"""The states of a synthesiser: each method in each state, by the table of RFC 6787 §8.1, and the queue."""

import itertools
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.media.playout_events import PlayoutOverflow
from cc_tts.mrcp.control.message import Request
from cc_tts.mrcp.control.states import SYNTH_TABLE, SynthEvent, SynthState
from cc_tts.mrcp.control.synthesizer import Synthesizer
from cc_tts.mrcp.messages import (
    MAX_LEXICONS,
    CloseSpeech,
    DefineLexicon,
    JumpSpeech,
    OpenSpeech,
    SpeechAudio,
    SpeechJumped,
    SpeechMark,
    SpeechOver,
    StartSpeech,
    Style,
    Taken,
)
from cc_tts.processes.channel import Message

pytestmark = pytest.mark.unit

CHANNEL = "abc@speechsynth"
Kind = TypeVar("Kind", bound=Message)
PLS = b"<lexicon/>"


class FakeLine:
    """The line as its synthesiser uses it; what it is told is written down."""

    def __init__(self) -> None:
        self.rate_hz: int | None = 8000
        self.played_ms = 0.0
        self.did: list[str] = []
        self.room_bytes = 1_000_000

    def begin(self, speech_id: int, at_ms: float = 0.0) -> None:
        self.did.append(f"begin {speech_id}" + (f" at {at_ms:g}" if at_ms else ""))

    def write(self, pcm: bytes) -> None:
        if len(pcm) > self.room_bytes:
            raise PlayoutOverflow("the buffer is full")

    def cut(self) -> None:
        self.did.append("cut")

    def pause(self) -> None:
        self.did.append("pause")

    def resume(self) -> None:
        self.did.append("resume")


class Answer:
    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        self.start, *lines = head.decode().split("\r\n")
        self.headers = dict(line.split(": ", 1) for line in lines)
        assert int(self.start.split()[1]) == len(data)

    @property
    def what(self) -> str:
        return self.start.split(" ", 2)[2]


class Bench:
    """A synthesiser between a fake client and a fake server."""

    def __init__(self, *, max_queued: int = 4) -> None:
        self.line = FakeLine()
        self.told: list[Message] = []
        self.answers: list[Answer] = []
        self.by_number: dict[int, Synthesizer] = {}
        self._last_request = 0
        self.synthesizer = Synthesizer(
            CHANNEL,
            mrcp_call_id="mrcp_1",
            line=cast("Any", self.line),
            tell=lambda message, _payload: self.told.append(message),
            send=lambda data: self.answers.append(Answer(data)),
            numbers=itertools.count(1),
            by_number=self.by_number,
            clock=MonotonicClock(),
            max_queued=max_queued,
        )

    def send(self, method: str, body: bytes = b"", **headers: str) -> None:
        self._last_request += 1
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.synthesizer.handle(Request(method, self._last_request, (("Channel-Identifier", CHANNEL), *named), body))

    def ask(self, method: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request that is answered at once; returns the answer."""
        num = len(self.answers)
        self.send(method, body, **headers)
        (answer,) = self.answers[num:]
        return answer

    def speak(self, text: str = "Hello.", **headers: str) -> int:
        """Have a text taken; returns the id of the request."""
        self.send("SPEAK", text.encode(), **{"Content_Type": "text/plain", **headers})
        self.synthesizer.take(Taken(self.of_kind(OpenSpeech)[-1].speech_id))
        return self._last_request

    def of_kind(self, kind: type[Kind]) -> list[Kind]:
        return [each for each in self.told if isinstance(each, kind)]

    def since(self, num: int) -> list[str]:
        return [each.what for each in self.answers[num:]]


def in_state(state: SynthState) -> Bench:
    bench = Bench()
    if state is not SynthState.IDLE:
        bench.speak()
    if state is SynthState.PAUSED:
        bench.send("PAUSE")
    assert bench.synthesizer.state is state
    return bench


def do(bench: Bench, event: SynthEvent) -> None:
    actions: dict[SynthEvent, Callable[[], object]] = {
        SynthEvent.SPEAK: bench.speak,
        SynthEvent.COMPLETE: bench.synthesizer.on_played,
        SynthEvent.CONTROL: lambda: bench.send("CONTROL", Jump_Size="+1 Second"),
        SynthEvent.DEFINE_LEXICON: lambda: bench.send(
            "DEFINE-LEXICON", PLS, Content_Type="application/pls+xml", Content_ID="<a>"
        ),
    }
    actions.get(event, lambda: bench.send(event))()


@pytest.mark.parametrize("event", SynthEvent)
@pytest.mark.parametrize("state", SynthState)
def test_each_method_in_each_state(state: SynthState, event: SynthEvent) -> None:
    bench = in_state(state)
    num = len(bench.answers)
    do(bench, event)
    wanted = SYNTH_TABLE.get((state, event))
    refused = [each for each in bench.since(num) if " 402 " in each]
    if wanted is None:
        assert bench.synthesizer.state is state
        assert refused or event is SynthEvent.COMPLETE
    else:
        assert not refused
        assert bench.synthesizer.state is wanted


def test_a_request_is_answered_when_its_text_was_taken_and_completes_when_it_was_heard() -> None:
    bench = Bench()
    bench.send("SPEAK", b"Hello.", Content_Type="text/plain")
    assert not bench.answers
    assert [type(each) for each in bench.told] == [OpenSpeech, StartSpeech]
    bench.synthesizer.take(Taken(1))
    assert re.fullmatch(r"timestamp=\d{19,20}", bench.answers[-1].headers["Speech-Marker"])
    bench.synthesizer.on_played()
    assert bench.since(0) == ["1 200 IN-PROGRESS", "SPEAK-COMPLETE 1 COMPLETE"]
    assert bench.answers[-1].headers["Completion-Cause"] == "000 normal"
    assert bench.told[-1] == CloseSpeech(1, 0.0, "normal")
    assert not bench.by_number


def test_further_requests_wait_and_begin_by_themselves() -> None:
    bench = Bench()
    first, second = bench.speak(), bench.speak()
    assert bench.since(1) == [f"{second} 200 PENDING"]
    bench.synthesizer.on_played()
    assert bench.since(2) == [f"SPEAK-COMPLETE {first} COMPLETE"]
    assert bench.told[-1] == StartSpeech(2)
    assert bench.synthesizer.state is SynthState.SPEAKING
    bench.synthesizer.on_played()
    assert bench.since(3) == [f"SPEAK-COMPLETE {second} COMPLETE"]


def test_the_queue_is_bounded() -> None:
    bench = Bench(max_queued=2)
    bench.speak(), bench.speak()
    answer = bench.ask("SPEAK", b"Hello.", Content_Type="text/plain")
    assert answer.what == "3 407 COMPLETE"


def test_stop_names_what_it_stopped_and_no_event_follows() -> None:
    bench = Bench()
    first, second = bench.speak(), bench.speak()
    answer = bench.ask("STOP")
    assert answer.headers["Active-Request-Id-List"] == f"{first},{second}"
    assert "cut" in bench.line.did
    assert not [each for each in bench.answers if each.what.startswith("SPEAK-COMPLETE")]


def test_stop_of_one_that_waits_leaves_the_one_that_is_spoken() -> None:
    bench = Bench()
    _, second, third = bench.speak(), bench.speak(), bench.speak()
    answer = bench.ask("STOP", Active_Request_Id_List=f"{second},99")
    assert answer.headers["Active-Request-Id-List"] == str(second)
    assert bench.synthesizer.state is SynthState.SPEAKING
    bench.synthesizer.on_played()
    assert bench.told[-1] == StartSpeech(third)


def test_stop_of_the_one_that_is_spoken_lets_the_next_begin() -> None:
    bench = Bench()
    first = bench.speak()
    bench.speak()
    bench.send("PAUSE")
    bench.send("STOP", Active_Request_Id_List=str(first))
    assert bench.told[-1] == StartSpeech(2)
    assert bench.synthesizer.state is SynthState.SPEAKING
    assert bench.line.did[-2:] == ["resume", "begin 2"]


def test_stop_when_idle_has_no_list() -> None:
    answer = Bench().ask("STOP")
    assert answer.what == "1 200 COMPLETE"
    assert "Active-Request-Id-List" not in answer.headers


def test_stop_before_the_text_was_taken_answers_both() -> None:
    bench = Bench()
    bench.send("SPEAK", b"Hello.", Content_Type="text/plain")
    bench.send("STOP")
    assert bench.since(0) == ["1 200 IN-PROGRESS", "2 200 COMPLETE"]
    bench.synthesizer.take(Taken(1))
    assert len(bench.answers) == 2


@pytest.mark.parametrize(("kill", "state"), [("true", SynthState.IDLE), ("false", SynthState.SPEAKING)])
def test_barge_in_ends_what_lets_itself_be_interrupted(kill: str, state: SynthState) -> None:
    bench = Bench()
    request_id = bench.speak(Kill_On_Barge_In=kill)
    answer = bench.ask("BARGE-IN-OCCURRED")
    assert answer.what == "2 200 COMPLETE"
    assert answer.headers.get("Active-Request-Id-List") == (str(request_id) if kill == "true" else None)
    assert bench.synthesizer.state is state


def test_barge_in_takes_the_queue_with_it_whatever_that_says() -> None:
    bench = Bench()
    bench.speak()
    bench.speak(Kill_On_Barge_In="false")
    answer = bench.ask("BARGE-IN-OCCURRED")
    assert answer.headers["Active-Request-Id-List"] == "1,2"


def test_set_params_hold_for_the_requests_that_follow() -> None:
    bench = Bench()
    bench.send("SET-PARAMS", Voice_Name="anna", Prosody_Rate="fast", Kill_On_Barge_In="false")
    bench.speak(Speech_Language="de-AT", Prosody_Volume="+3dB")
    (opened,) = bench.of_kind(OpenSpeech)
    assert opened.style == Style(voices=("anna",), language="de-AT", rate=1.35, gain_db=3.0)
    answer = bench.ask("GET-PARAMS", Voice_Name="", Kill_On_Barge_In="")
    assert (answer.headers["Voice-Name"], answer.headers["Kill-On-Barge-In"]) == ("anna", "false")


def test_get_params_without_names_tells_all_that_is_set() -> None:
    bench = Bench()
    bench.send("SET-PARAMS", Voice_Gender="female")
    answer = bench.ask("GET-PARAMS")
    assert answer.headers == {"Channel-Identifier": CHANNEL, "Kill-On-Barge-In": "true", "Voice-Gender": "female"}


@pytest.mark.parametrize(
    ("method", "headers", "status", "named"),
    [
        ("SET-PARAMS", {"Prosody_Rate": "quick"}, 404, "Prosody-Rate"),
        ("SET-PARAMS", {"Kill_On_Barge_In": "perhaps"}, 404, "Kill-On-Barge-In"),
        ("SET-PARAMS", {"Voice_Size": "9"}, 403, "Voice-Size"),
        ("GET-PARAMS", {"Jump_Size": ""}, 403, "Jump-Size"),
        ("SPEAK", {"Content_Type": "text/plain", "Voice_Gender": "robot"}, 404, "Voice-Gender"),
        ("SPEAK", {"Content_Type": "text/plain", "Speak_Length": "+3 Word"}, 409, "Speak-Length"),
        ("SPEAK", {"Content_Type": "text/plain", "Speak_Length": "here Tag"}, 409, "Speak-Length"),
        ("SPEAK", {"Content_Type": "text/plain", "Speak_Length": "three"}, 404, "Speak-Length"),
        ("SPEAK", {"Content_Type": "image/png"}, 408, "Content-Type"),
        ("SPEAK", {"Content_Type": "text/plain; charset=utf-7"}, 408, "Content-Type"),
        ("SPEAK", {}, 406, "Content-Type"),
        ("SPEAK", {"Content_Type": "text/uri-list"}, 407, "Completion-Cause"),
        ("DEFINE-LEXICON", {"Content_Type": "application/pls+xml"}, 406, "Channel-Identifier"),
        ("DEFINE-LEXICON", {"Content_Type": "text/uri-list", "Content_ID": "<a>"}, 407, "Completion-Cause"),
        ("DEFINE-LEXICON", {"Content_Type": "text/plain", "Content_ID": "<a>"}, 408, "Content-Type"),
        ("RECOGNIZE", {}, 401, "Channel-Identifier"),
        ("STOP", {"Active_Request_Id_List": "all"}, 404, "Active-Request-Id-List"),
    ],
)
def test_what_cannot_be_done_has_a_status(method: str, headers: dict[str, str], status: int, named: str) -> None:
    bench = Bench()
    answer = bench.ask(method, b"x" if method in ("SPEAK", "DEFINE-LEXICON") else b"", **headers)
    assert answer.what == f"1 {status} COMPLETE"
    assert named in answer.headers
    assert bench.synthesizer.state is SynthState.IDLE
    assert not bench.told


@pytest.mark.parametrize(
    ("code", "status", "cause"),
    [
        ("ssml_malformed", 407, "002 parse-failure"),
        ("language_unsupported", 407, "005 language-unsupported"),
        ("engine_overloaded", 407, "004 error"),
        ("unknown_voice", 409, "004 error"),
        ("text_too_long", 504, "004 error"),
    ],
)
def test_a_text_that_is_not_taken_is_refused_and_the_next_begins(code: str, status: int, cause: str) -> None:
    bench = Bench()
    bench.send("SPEAK", b"<speak>", Content_Type="application/ssml+xml")
    bench.send("SPEAK", b"Hello.", Content_Type="text/plain")
    bench.synthesizer.take(Taken(1, code, "line 1"))
    assert bench.since(0) == [f"1 {status} COMPLETE"]
    assert bench.answers[0].headers["Completion-Cause"] == cause
    assert bench.told[-1] == StartSpeech(2)


def test_speech_that_breaks_off_completes_with_an_error() -> None:
    bench = Bench()
    bench.speak()
    bench.synthesizer.take(SpeechOver(1, "engine_failed", "no audio for 15 s"))
    assert bench.since(1) == ["SPEAK-COMPLETE 1 COMPLETE"]
    assert bench.answers[-1].headers["Completion-Cause"] == "004 error"
    assert bench.answers[-1].headers["Completion-Reason"] == '"no audio for 15 s"'
    assert bench.synthesizer.state is SynthState.IDLE


def test_speech_of_which_nothing_could_be_sent_completes_with_an_error() -> None:
    bench = Bench()
    bench.speak()
    bench.synthesizer.on_played("Network is unreachable")
    assert bench.answers[-1].headers["Completion-Cause"] == "004 error"
    assert bench.told[-1] == CloseSpeech(1, 0.0, "error")


def test_marks_are_events_with_their_name() -> None:
    bench = Bench()
    bench.speak()
    bench.synthesizer.take(SpeechMark(1, "here"))
    assert bench.since(1) == ["SPEECH-MARKER 1 IN-PROGRESS"]
    assert bench.answers[-1].headers["Speech-Marker"].endswith(";here")
    bench.synthesizer.on_played()
    assert bench.answers[-1].headers["Speech-Marker"].endswith(";here")


def test_a_speech_whose_audio_was_lost_ends_with_an_error() -> None:
    bench = Bench()
    bench.speak()
    bench.line.room_bytes = 160
    bench.synthesizer.take(SpeechAudio(1), bytes(320))
    assert bench.answers[-1].what == "SPEAK-COMPLETE 1 COMPLETE"
    assert bench.answers[-1].headers["Completion-Cause"] == "004 error"
    assert bench.synthesizer.state is SynthState.IDLE


def test_control_goes_on_from_another_place_and_is_answered_then() -> None:
    bench = Bench()
    bench.speak()
    bench.line.played_ms = 2000.0
    bench.send("CONTROL", Jump_Size="-5 Second")
    assert len(bench.answers) == 1
    assert bench.of_kind(JumpSpeech) == [JumpSpeech(1, 2000.0, -5, "second", Style())]
    assert not bench.synthesizer.takes_audio(1)
    bench.synthesizer.take(SpeechJumped(1, 0.0, restarts=True))
    assert bench.answers[-1].what == "2 200 COMPLETE"
    assert bench.answers[-1].headers["Speak-Restart"] == "true"
    assert bench.answers[-1].headers["Active-Request-Id-List"] == "1"
    assert bench.synthesizer.takes_audio(1)


def test_control_waits_until_the_text_was_looked_at_and_counted() -> None:
    bench = Bench()
    bench.send("SPEAK", b"Hello.", Content_Type="text/plain")
    answer = bench.ask("CONTROL", Prosody_Rate="slow")
    assert answer.what == "2 407 COMPLETE"
    assert not bench.of_kind(JumpSpeech)
    bench.synthesizer.take(Taken(1))
    bench.send("CONTROL", Prosody_Rate="slow")
    assert bench.of_kind(JumpSpeech)


@pytest.mark.parametrize(("code", "status"), [("unknown_voice", 409), ("engine_failed", 407)])
def test_a_control_that_is_not_possible_is_refused_and_the_text_goes_on_as_it_was(code: str, status: int) -> None:
    bench = Bench()
    bench.speak()
    bench.line.played_ms = 2000.0
    bench.send("CONTROL", Voice_Name="nobody")
    bench.synthesizer.take(SpeechJumped(1, 2000.0, restarts=False, code=code))
    assert bench.answers[-1].what == f"2 {status} COMPLETE"
    assert bench.line.did[-1] == "begin 1 at 2000"
    assert bench.synthesizer.takes_audio(1)
    bench.send("CONTROL", Prosody_Rate="slow")
    assert bench.of_kind(JumpSpeech)[-1] == JumpSpeech(1, 2000.0, 0, "second", Style(rate=0.75))


def test_stop_answers_a_control_that_waits() -> None:
    bench = Bench()
    bench.speak()
    bench.send("CONTROL", Jump_Size="+5 Second")
    bench.send("STOP")
    assert bench.since(1) == ["2 200 COMPLETE", "3 200 COMPLETE"]
    bench.synthesizer.take(SpeechJumped(1, 0.0, restarts=False))
    assert len(bench.answers) == 3


def test_a_lexicon_is_used_once_it_is_taken() -> None:
    bench = Bench()
    define = {"Content_Type": "application/pls+xml", "Content_ID": "<names@client>"}
    bench.send("DEFINE-LEXICON", PLS, **define)
    assert not bench.answers
    (defined,) = bench.of_kind(DefineLexicon)
    bench.synthesizer.take(Taken(defined.number))
    assert bench.answers[-1].what == "1 200 COMPLETE"
    bench.speak()
    opened = bench.of_kind(OpenSpeech)[-1]
    assert opened.lexicons == ("session:names@client",)


def test_a_lexicon_that_cannot_be_used_is_refused() -> None:
    bench = Bench()
    bench.send("DEFINE-LEXICON", PLS, Content_Type="application/pls+xml", Content_ID="<a>")
    bench.synthesizer.take(Taken(1, "lexicon_malformed", "no lexeme"))
    assert bench.answers[-1].what == "1 407 COMPLETE"
    assert bench.answers[-1].headers["Completion-Cause"] == "006 lexicon-load-failure"


def test_lexicons_are_bounded() -> None:
    bench = Bench()
    for number in range(MAX_LEXICONS):
        bench.send("DEFINE-LEXICON", PLS, Content_Type="application/pls+xml", Content_ID=f"<{number}>")
        bench.synthesizer.take(Taken(number + 1))
    answer = bench.ask("DEFINE-LEXICON", PLS, Content_Type="application/pls+xml", Content_ID="<more>")
    assert answer.what.split()[1] == "407"


def test_a_session_without_audio_speaks_nothing() -> None:
    bench = Bench()
    bench.line.rate_hz = None
    answer = bench.ask("SPEAK", b"Hello.", Content_Type="text/plain")
    assert answer.what == "1 407 COMPLETE"


@pytest.mark.parametrize(
    ("content_type", "body", "charset"),
    [
        ("text/plain", b"Hello.", "utf-8-sig"),
        ('text/plain; charset="GB2312"', b"Hello.", "gb18030"),
        ("application/ssml+xml", b'<?xml version="1.0" encoding="GBK"?><speak/>', "gb18030"),
        ("application/ssml+xml;charset=utf-8", b'<?xml version="1.0" encoding="GBK"?><speak/>', "utf-8-sig"),
    ],
)
def test_a_text_is_in_the_encoding_that_it_says(content_type: str, body: bytes, charset: str) -> None:
    bench = Bench()
    bench.send("SPEAK", body, Content_Type=content_type)
    (opened,) = bench.of_kind(OpenSpeech)
    assert opened.charset == charset


def test_control_does_not_jump_to_a_mark() -> None:
    bench = Bench()
    bench.speak()
    answer = bench.ask("CONTROL", Jump_Size="here Tag")
    assert (answer.what, answer.headers["Jump-Size"]) == ("2 409 COMPLETE", "here Tag")
    assert not bench.of_kind(JumpSpeech)
