"""Which prompt an INVITE carries and how it is answered: every way in, and what is refused."""

import contextlib
import dataclasses
from collections.abc import Mapping
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.calls.dialplan.request_uri import MAX_URI_CHARS, parse_uri, percent_decode
from cc_tts.calls.dialplan.routing import RouteDecision, decide
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.config.schema import CallsConfig, Config, RouteConfig, SipConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.errors import (
    ClientError,
    Forbidden,
    MalformedRequest,
    NotFound,
    NothingToSay,
    SsmlMalformed,
    TextTooLong,
)
from cc_tts.speech.prompt import Content, Prompt, PromptDefaults, StagedContent, TextContent, UrlContent, texts_of

pytestmark = pytest.mark.unit

PBX = "10.0.0.7"
STRANGER = "192.0.2.66"
CONFIG = Config(
    sip=SipConfig(trusted_peers=("10.0.0.0/8", "2001:db8::/32")),
    tts=TtsConfig(max_text_chars=50),
    calls=CallsConfig(max_repeat=20, max_announcement_s=30.0),
    routes={
        "hello": RouteConfig(greeting="Hello.", voice="en-gb", language="en", then="hangup"),
        "ring": RouteConfig(answer="ring", ring_ms=700),
        "desk": RouteConfig(answer="manual"),
        "office": RouteConfig(answer="manual", unanswered_greeting="We are away."),
        "say": RouteConfig(then="hangup"),
        "desk-1": RouteConfig(greeting="One moment.", then="transfer", transfer_to="sip:1@pbx"),
        "ü": RouteConfig(greeting="Umlaut."),
    },
)


def route(
    uri: str, headers: Mapping[str, str] | None = None, *, source: str = PBX, config: Config = CONFIG
) -> RouteDecision:
    return decide(request_uri=uri, trusted=source == PBX, headers=headers or {}, config=config)


def prompt_of(decision: RouteDecision) -> Prompt:
    assert decision.prompt is not None
    return decision.prompt


def text_of(decision: RouteDecision) -> TextContent:
    content = prompt_of(decision).content
    assert isinstance(content, TextContent)
    return content


# --- precedence -----------------------------------------------------------------------------------


def test_a_route_greets() -> None:
    decision = route("sip:hello@tts")
    assert (decision.route.answer, decision.defaults.voice, decision.defaults.language) == ("now", "en-gb", "en")
    assert text_of(decision) == TextContent("Hello.", "en-gb", "en")
    assert prompt_of(decision).then == "hangup"


def test_the_text_header_goes_before_the_greeting() -> None:
    decision = route("sip:hello@tts", {"X-TTS-Text": "Guten%20Tag", "X-TTS-Voice": "de", "X-TTS-Language": "de-DE"})
    assert text_of(decision) == TextContent("Guten Tag", "de", "de-DE")
    assert prompt_of(decision).then == "hangup", "the route's `then` is the default for every prompt of the INVITE"
    stay = route("sip:hello@tts", {"X-TTS-Text": "Guten%20Tag", "X-TTS-Then": "stay"})
    assert prompt_of(stay).then == "stay"
    assert (decision.defaults.voice, decision.defaults.language) == ("de", "de-DE")


def test_instructions_are_how_the_words_of_the_call_are_spoken() -> None:
    headers = {"X-TTS-Instructions": "%E7%94%A8%E5%9B%9B%E5%B7%9D%E8%AF%9D%E8%AF%B4"}
    for more in ({}, {"X-TTS-Text": "Hi"}, {"X-TTS-SSML": "<speak>Hi</speak>"}):
        decision = route("sip:hello@tts", headers | more)
        (text,) = texts_of(prompt_of(decision).content)
        assert (decision.defaults.instructions, text.instructions) == ("用四川话说", "用四川话说")
    assert route("sip:hello@tts", {"X-TTS-Instructions": "%20"}).defaults.instructions is None


def test_the_instructions_of_a_route_are_of_its_greeting_and_of_the_call_unless_a_header_has_others() -> None:
    calm = Config(sip=CONFIG.sip, routes={"a": RouteConfig(greeting="Hi.", instructions="speak calmly")})
    decision = route("sip:a@tts", config=calm)
    assert (decision.defaults.instructions, text_of(decision).instructions) == ("speak calmly", "speak calmly")
    other = route("sip:a@tts", {"X-TTS-Instructions": "fast", "X-TTS-Text": "Hello"}, config=calm)
    assert (other.defaults.instructions, text_of(other).instructions) == ("fast", "fast")


def test_the_text_header_goes_before_play() -> None:
    decision = route("sip:annc@tts;play=tts:From%20the%20URI", {"X-TTS-Text": "From%20the%20header"})
    assert text_of(decision).text == "From the header"
    assert prompt_of(decision).then == "hangup", "an announcement ends with BYE wherever its words come from"


@pytest.mark.parametrize(
    ("uri", "headers", "content"),
    [
        ("sip:annc@tts;play=tts:x", {"X-TTS-Prompt-Id": "p1", "X-TTS-Text": "x"}, StagedContent("p1")),
        ("sip:annc@tts;play=prompt:p1", {}, StagedContent("p1")),
        ("sip:annc@tts;play=HTTPS://h/a%2520b.wav%3Fx=1", {}, UrlContent("https://h/a%20b.wav?x=1")),
        ("sip:annc@tts;play=TTS%3AA%3Bb%3D%3F", {}, TextContent("A;b=?")),
        ("sip:hello@tts;play=tts:x", {}, TextContent("Hello.", "en-gb", "en")),
        ("sip:hello@tts", {"x-tts-TEXT": "Hi", "X-TTS-Voice": "fr"}, TextContent("Hi", "fr", "en")),
        ("sip:%68ello@tts", {}, TextContent("Hello.", "en-gb", "en")),
        ("sip:%C3%BC@tts", {}, TextContent("Umlaut.")),
        ("sip:nobody@tts", {}, TextContent("Star.")),
        ("sip:tts", {}, TextContent("Star.")),
    ],
)
def test_what_is_said_first(uri: str, headers: dict[str, str], content: Content) -> None:
    config = dataclasses.replace(CONFIG, routes={**CONFIG.routes, "*": RouteConfig(greeting="Star.")})
    assert prompt_of(route(uri, headers, config=config)).content == content


def test_without_a_greeting_there_is_silence() -> None:
    decision = route("sip:ring@tts")
    assert decision == RouteDecision(route=CONFIG.routes["ring"], prompt=None, defaults=PromptDefaults())
    assert route("sip:desk@tts").route.answer == "manual"


@pytest.mark.parametrize(("value", "then"), [("hangup", "hangup"), ("STAY", "stay"), ("", "hangup")])
def test_then_header(value: str, then: str) -> None:
    assert prompt_of(route("sip:hello@tts", {"X-TTS-Then": value})).then == then


# --- nothing to say -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [{}, {"X-TTS-Text": ""}])
@pytest.mark.parametrize(
    ("user", "headers"),
    [("say", {}), ("ring", {"X-TTS-Then": "hangup"}), ("say", {"X-TTS-Then": "HangUp"}), ("annc", {"X-TTS-Text": ""})],
)
def test_a_call_that_would_be_silent_for_ever_is_refused(
    user: str, headers: dict[str, str], text: dict[str, str]
) -> None:
    with pytest.raises(ClientError) as caught:
        route(f"sip:{user}@tts", headers | text)
    assert caught.value.sip_status == 400


@pytest.mark.parametrize(
    ("user", "headers"), [("say", {"X-TTS-Then": "stay"}), ("ring", {}), ("desk", {"X-TTS-Then": "hangup"})]
)
def test_a_call_that_stays_or_waits_for_its_application_needs_no_prompt(user: str, headers: dict[str, str]) -> None:
    assert route(f"sip:{user}@tts", headers).prompt is None


def test_a_stranger_whose_prompt_does_not_count_is_told_so_where_there_is_nothing_else_to_say() -> None:
    with pytest.raises(Forbidden):
        route("sip:say@tts", {"X-TTS-Text": "Hi"}, source=STRANGER)
    with pytest.raises(NothingToSay):
        route("sip:say@tts", source=STRANGER)


def test_what_is_said_when_nobody_answers_has_the_voice_of_the_call() -> None:
    decision = route("sip:office@tts", {"X-TTS-Voice": "fr"})
    assert decision.unanswered is not None
    assert decision.unanswered.content == TextContent("We are away.", "fr")
    assert (decision.unanswered.then, decision.unanswered.queue) == ("hangup", "replace")
    assert route("sip:desk@tts").unanswered is None


# --- who may --------------------------------------------------------------------------------------


def test_headers_of_strangers_mean_nothing() -> None:
    headers = {"X-TTS-Text": "%", "X-TTS-Voice": "de", "X-TTS-Then": "explode", "X-TTS-Prompt-Id": "p"}
    assert route("sip:hello@tts", headers, source=STRANGER) == route("sip:hello@tts")


@pytest.mark.parametrize("headers", [{}, {"X-TTS-Text": "Hi"}])
def test_strangers_get_no_announcement(headers: dict[str, str]) -> None:
    with pytest.raises(Forbidden) as caught:
        route("sip:annc@tts;play=tts:Hi", headers, source=STRANGER)
    assert caught.value.sip_status == 403


# --- users ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "user", "parameters"),
    [
        ("sip:a@h", "a", {}),
        ("SIPS:a@h:5061", "a", {}),
        ("sip:h", "", {}),
        ("sip:a:secret@h", "a", {}),
        ("sip:a@[2001:db8::1]:5060;x=1", "a", {"x": "1"}),
        ("sip:a@h;Play=tts:B;lr;x=a=b", "a", {"play": "tts:B", "lr": "", "x": "a=b"}),
        ("sip:a@h;x=1;X=2", "a", {"x": "1"}),
        ("sip:a@h;;=1;x=1", "a", {"x": "1"}),
        ("sip:a@h;x=1?Subject=hi;y=2", "a", {"x": "1"}),
    ],
)
def test_parse_uri(uri: str, user: str, parameters: dict[str, str]) -> None:
    assert parse_uri(uri) == (user, parameters)


@pytest.mark.parametrize("uri", ["", "tel:+15550100", "sip:", "sip:a@", "http://h", "sip:a@h@i", "annc", "sip:%zz@h"])
def test_what_is_no_sip_uri_is_400(uri: str) -> None:
    with pytest.raises(MalformedRequest):
        parse_uri(uri)


def test_an_endless_uri_is_400() -> None:
    parse_uri("sip:a@h;x=" + "1" * (MAX_URI_CHARS - 10))
    with pytest.raises(MalformedRequest, match="longer than"):
        parse_uri("sip:a@h;x=" + "1" * MAX_URI_CHARS)


# --- announcements (RFC 4240) ---------------------------------------------------------------------


def announce(parameters: str, headers: Mapping[str, str] | None = None) -> Prompt:
    decision = route(f"sip:annc@tts;play=tts:Hi{parameters}", headers)
    assert decision.route.answer == "now"
    return prompt_of(decision)


def test_a_plain_announcement_is_said_once_and_hung_up() -> None:
    prompt = announce("")
    assert prompt == Prompt(
        content=TextContent("Hi"), then="hangup", repeat=1, delay_ms=0, max_duration_ms=30_000, unattended=True
    )


def test_an_announcement_is_answered_at_once_whatever_the_routes_say() -> None:
    config = dataclasses.replace(CONFIG, routes={"*": RouteConfig(answer="manual")})
    decision = route("sip:annc@tts", {"X-TTS-Text": "Hi"}, config=config)
    assert decision.route.answer == "now"


def test_every_parameter_of_an_announcement() -> None:
    prompt = announce(";repeat=3;delay=500;duration=9000;locale=zh_CN;voice=cmn;speed=1.25;content-type=x")
    assert prompt.content == TextContent("Hi", "cmn", "zh-CN", 1.25)
    assert (prompt.repeat, prompt.delay_ms, prompt.max_duration_ms) == (3, 500, 9000)


@pytest.mark.parametrize(("repeat", "times"), [("1", 1), ("20", 20), ("21", 20), ("999999999", 20), ("Forever", 20)])
def test_repeat_has_a_ceiling(repeat: str, times: int) -> None:
    assert announce(f";repeat={repeat}").repeat == times


@pytest.mark.parametrize(("duration", "ceiling_ms"), [("1000", 1000), ("30001", 30_000), ("999999999", 30_000)])
def test_duration_has_a_ceiling(duration: str, ceiling_ms: int) -> None:
    assert announce(f";duration={duration}").max_duration_ms == ceiling_ms


def test_headers_go_before_the_parameters_of_an_announcement() -> None:
    prompt = announce(";voice=cmn;locale=zh", {"X-TTS-Voice": "de", "X-TTS-Language": "de", "X-TTS-Then": "stay"})
    assert prompt.content == TextContent("Hi", "de", "de")
    assert prompt.then == "stay"


# --- what cannot be read ----------------------------------------------------------------------------

HI = "annc@tts;play=tts:Hi"
GATHERS = (
    *("max", "max=", "max=0", "max=129", "max=1;max=2"),
    *("finish=x", "pause=1", "sensitive=1", "min=3;max=2", "tries=-1"),
)
NO_PERCENT_ENCODING = ("%", "%2", "%zz", "100% sure", "%ff", "%C3", "%ED%A0%80", "a%00b", "ü", "%20%")
HEADERS: dict[str, tuple[str, ...]] = {
    "X-TTS-Text": NO_PERCENT_ENCODING,
    "X-TTS-Then": ("later", "hang up", "0"),
    "X-TTS-Delay": ("soon", "-1", "10001", "1e3", "²", "1" * 5000),
    "X-TTS-Instructions": ("calm%", "x" * 501, "calm%3C%7Cendofprompt%7C%3E", "calm%00"),
    "X-TTS-Gather": GATHERS,
    "X-TTS-Transfer": ("1001", "sip:1@pbx?Route=x"),
}
PARAMETERS = {
    "repeat": ("0", "-1", "", "x", "1.5", "1000000000", "%31", "٣"),
    "delay": ("-1", "", "x", "1.5", "1000000000", "120001"),
    "duration": ("-1", "", "x", "1.5", "1000000000"),
    "speed": ("0.4", "2.1", "fast", "", "1e0", "+1"),
    "voice": ("%ff",),
    "locale": ("%",),
}
STATUSES: dict[type[ClientError], int] = {MalformedRequest: 400, SsmlMalformed: 400, NotFound: 404, TextTooLong: 413}
Refusal = tuple[str, dict[str, str], type[ClientError], str]
REFUSED: list[Refusal] = [
    *(("hello@tts", {name: value}, MalformedRequest, name) for name, values in HEADERS.items() for value in values),
    *((f"{HI};{name}={value}", {}, MalformedRequest, name) for name, values in PARAMETERS.items() for value in values),
    *((f"annc@tts;play=tts:{text}", {}, MalformedRequest, "play=") for text in NO_PERCENT_ENCODING),
    *((f"{user}@tts", {}, NotFound, "no route for user") for user in ("nobody", "HELLO", "hello2")),
    ("tts", {}, NotFound, "no route for user"),
    ("annc@tts", {}, MalformedRequest, "play= is missing"),
    ("annc@tts;play", {}, MalformedRequest, "play= is missing"),
    ("annc@tts;play=", {}, MalformedRequest, "play= is missing"),
    ("annc@tts;play=tts:Hi;PLAY=tts:Ho", {}, MalformedRequest, "play= comes twice"),
    ("annc@tts;play=welcome.wav", {}, NotFound, "nothing known"),
    ("annc@tts;play=ftp://h/a.wav", {}, NotFound, "ftp: is not known"),
    ("annc@tts;play=file:///etc/passwd", {}, NotFound, "file: is not known"),
    ("annc@tts;play=tts:" + "a" * 51, {}, TextTooLong, "play="),
    ("annc@tts;play=ssml:hi", {}, SsmlMalformed, "ssml"),
    ("hello@tts", {"X-TTS-SSML": "hello"}, SsmlMalformed, "X-TTS-SSML"),
    ("say@tts", {"X-TTS-SSML": "%3Cspeak%3EHi"}, SsmlMalformed, "X-TTS-SSML: line 1"),
    ("hello@tts", {"X-TTS-SSML": "%3Cspeak%2F%3E", "X-TTS-Text": "hi"}, MalformedRequest, "exclude each other"),
    ("hello@tts", {"X-TTS-Transfer": "sip:1@pbx", "X-TTS-Then": "hangup"}, MalformedRequest, "not with hangup"),
    ("hello@tts", {"X-TTS-Then": "transfer"}, MalformedRequest, "needs X-TTS-Transfer"),
    ("hello@tts", {"X-TTS-Transfer": "sip:1@pbx", "X-TTS-Gather": "max=1"}, MalformedRequest, "exclude each other"),
    ("desk@tts", {"X-TTS-Transfer": "sip:1@pbx"}, MalformedRequest, "the application of this route transfers the call"),
]


@pytest.mark.parametrize(("uri", "headers", "error", "said"), REFUSED)
def test_what_cannot_be_meant_is_refused_with_its_reason(
    uri: str, headers: dict[str, str], error: type[ClientError], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        route(f"sip:{uri}", headers)
    assert type(caught.value) is error
    assert (
        caught.value.sip_status == {MalformedRequest: 400, SsmlMalformed: 400, NotFound: 404, TextTooLong: 413}[error]
    )


# --- text -----------------------------------------------------------------------------------------


def test_too_much_text_is_413() -> None:
    assert text_of(route("sip:hello@tts", {"X-TTS-Text": "%C3%BC" * 50})).text == "ü" * 50, "characters, not bytes"
    with pytest.raises(TextTooLong) as caught:
        route("sip:hello@tts", {"X-TTS-Text": "%C3%BC" * 51})
    assert caught.value.sip_status == 413


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_what_was_quoted_comes_back(text: str) -> None:
    assert percent_decode(quote(text, safe=""), "text") == text


@given(st.text())
def test_no_request_uri_breaks_the_router(uri: str) -> None:
    for candidate in (uri, f"sip:{uri}", f"sip:annc@h;{uri}", f"sip:annc@h;play={uri}"):
        with contextlib.suppress(ClientError):  # a refusal is an answer; anything else is a fault of ours
            route(candidate)


# --- lead-in ----------------------------------------------------------------------------------------


def test_a_lead_in_comes_from_the_header_or_the_route() -> None:
    config = dataclasses.replace(CONFIG, routes={"hello": RouteConfig(lead_in_ms=60)})
    assert route("sip:hello@tts").lead_in_ms == 0
    assert route("sip:hello@tts", config=config).lead_in_ms == 60
    assert route("sip:hello@tts", {"X-TTS-Delay": "0"}, config=config).lead_in_ms == 0
    assert route("sip:hello@tts", {"X-TTS-Delay": "10000"}, config=config).lead_in_ms == 10_000
    assert route("sip:hello@tts", {"X-TTS-Delay": "5"}, source=STRANGER, config=config).lead_in_ms == 60
    assert route("sip:annc@tts;play=tts:Hi", {"X-TTS-Delay": "40"}).lead_in_ms == 40


def test_a_gather_of_the_dialplan() -> None:
    header = "min=4; max=8;finish=#*;valid=0123456789;initial=8000;inter=3000;timeout=60000;tries=3;sensitive=yes"
    decision = route("sip:say@h", {"X-TTS-Text": "Hello", "X-TTS-Gather": header})
    assert decision.gather == GatherRequest(
        min_digits=4,
        max_digits=8,
        finish_on_key="#*",
        valid_digits="0123456789",
        initial_timeout_ms=8000,
        inter_digit_timeout_ms=3000,
        timeout_ms=60_000,
        max_tries=3,
        sensitive=True,
        prompt=dataclasses.replace(prompt_of(decision), then="stay"),
        then="hangup",
    )


def test_a_gather_needs_no_prompt_and_may_leave_the_call_up() -> None:
    decision = route("sip:say@h", {"X-TTS-Gather": "max=1;finish=", "X-TTS-Then": "stay"})
    assert decision.gather == GatherRequest(max_digits=1, finish_on_key="")
    assert route("sip:ring@h", {"X-TTS-Gather": "max=1"}, source=STRANGER).gather is None


@pytest.mark.parametrize(
    ("uri", "headers"),
    [
        ("sip:hello@tts", {"X-TTS-Language": "a" * 5000}),
        ("sip:hello@tts", {"X-TTS-Language": "de_"}),
        ("sip:hello@tts", {"X-TTS-Language": "de de"}),
        ("sip:hello@tts", {"X-TTS-Language": "d\u00e9"}),
        ("sip:hello@tts", {"X-TTS-Voice": "a" * 129}),
        ("sip:hello@tts", {"X-TTS-Voice": "a\x1b"}),
        ("sip:annc@tts;play=tts:a;locale=" + "a" * 40, {}),
        ("sip:annc@tts;play=tts:a;voice=" + "a" * 129, {}),
    ],
)
def test_what_is_no_language_or_voice_is_refused(uri: str, headers: dict[str, str]) -> None:
    with pytest.raises(MalformedRequest) as caught:
        route(uri, headers)
    assert len(caught.value.detail) < 100


# --- transfers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "headers", "target"),
    [
        ("hello", {"X-TTS-Transfer": "sip:2@pbx"}, "sip:2@pbx"),
        ("hello", {"x-tts-transfer": " <sip:2@pbx;user=phone> ", "X-TTS-Then": "transfer"}, "sip:2@pbx;user=phone"),
        ("ring", {"X-TTS-Transfer": "sip:2@pbx"}, "sip:2@pbx"),
        ("annc;play=tts:Hi", {"X-TTS-Transfer": "sip:2@pbx"}, "sip:2@pbx"),
        ("desk-1", {}, "sip:1@pbx"),
        ("desk-1", {"X-TTS-Text": "Hi", "X-TTS-Transfer": "sip:2@pbx"}, "sip:2@pbx"),
        ("desk-1", {"X-TTS-Then": "hangup"}, ""),
        ("desk-1", {"X-TTS-Then": "stay"}, ""),
        ("hello", {}, ""),
    ],
)
def test_whom_the_caller_is_handed_over_to(user: str, headers: dict[str, str], target: str) -> None:
    user, semicolon, parameters = user.partition(";")
    decision = route(f"sip:{user}@tts{semicolon}{parameters}", headers)
    assert decision.transfer_to == target
    if target and decision.prompt is not None:
        assert decision.prompt.then == "stay", "the transfer decides what becomes of the call"


def test_a_stranger_who_asks_for_a_transfer_is_refused_and_not_ignored() -> None:
    with pytest.raises(Forbidden, match="trusted_peers"):
        route("sip:hello@tts", {"X-TTS-Transfer": "sip:1@pbx"}, source=STRANGER)
    assert route("sip:desk-1@tts", {}, source=STRANGER).transfer_to == "sip:1@pbx"
