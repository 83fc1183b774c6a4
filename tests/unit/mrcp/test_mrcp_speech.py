"""One SPEAK request as the server carries it out, and the lexicons of sessions, with a made-up engine."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any, cast

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import Config
from cc_tts.config.sections.models import TtsConfig
from cc_tts.errors import EngineFailed
from cc_tts.metrics import Metrics
from cc_tts.mrcp.messages import (
    CloseSpeech,
    DefineLexicon,
    JumpSpeech,
    OpenSpeech,
    Sessions,
    SpeechJumped,
    SpeechOver,
    StartSpeech,
    Style,
    Taken,
)
from cc_tts.mrcp.server.client import MrcpProcess
from cc_tts.mrcp.server.speech import MrcpSpeech, SpeechServices
from cc_tts.processes.channel import Message
from cc_tts.speech.source import SpeechSource
from cc_tts.tenants.accounting import AccountingLog
from cc_tts.tenants.quotas import TenantQuotas
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.pronunciation.lexicon import CompiledLexicon, Lexicon
from cc_tts.tracing.span import Span
from cc_tts.tracing.tracer import Tracer
from lab.waiting import until
from tests.fakes.fake_engine import FakeEngine

pytestmark = pytest.mark.unit

LONG = "Good morning. " * 100


class Bench:
    def __init__(self, text: str = LONG, span: Span | None = None) -> None:
        self.engine = FakeEngine()
        self.told: list[Message] = []
        services = SpeechServices(
            config=Config(),
            source=SpeechSource(cast("Any", self.engine), Normalizer(), TtsConfig()),
            tenants=TenantQuotas(),
            accounting=AccountingLog(),
            metrics=Metrics(),
            clock=MonotonicClock(),
            new_id=lambda: "u",
            send=lambda message, _payload=b"": self.told.append(message),
        )
        opened = OpenSpeech(1, "mrcp_1", "text", Style(), 8000)
        self.speech = MrcpSpeech(opened, text.encode(), (), services, span)
        self.speech.begin()
        self.speech.take(StartSpeech(1))

    async def until(self, kind: type[Message], *, num: int = 1) -> Message:
        found: Callable[[], list[Message]] = lambda: [each for each in self.told if isinstance(each, kind)]  # noqa: E731
        await until(lambda: len(found()) >= num)
        return found()[num - 1]


def jump(style: Style = Style(), played_ms: float = 100.0) -> JumpSpeech:  # noqa: B008 - frozen
    return JumpSpeech(1, played_ms, 0, "second", style)


async def test_markup_and_reasoning_are_taken_out_of_a_plain_text() -> None:
    bench = Bench("<think>Five, I guess.</think>**Total:** five dollars.")
    await bench.until(SpeechOver)
    assert [each for stream in bench.engine.streams for each in stream.pushed] == ["Total: five dollars."]
    nothing = Bench("<think>Hm.</think>")
    assert cast("Taken", await nothing.until(Taken)).code == "nothing_to_say"


async def test_a_speech_that_is_closed_while_it_jumps_ends() -> None:
    bench = Bench()
    await bench.until(Taken)
    bench.speech.take(jump())
    await asyncio.sleep(0)  # the jump waits for the end of what was spoken before
    async with asyncio.timeout(2):
        await bench.speech.close(100.0, "cancelled")
    assert all(stream.is_cancelled for stream in bench.engine.streams)
    assert not [each for each in bench.told if isinstance(each, SpeechJumped)]


async def test_a_jump_to_a_voice_that_there_is_not_says_so_and_the_text_goes_on() -> None:
    bench = Bench("Good morning.")
    await bench.until(Taken)
    bench.speech.take(jump(Style(voices=("nobody",))))
    found = cast("SpeechJumped", await bench.until(SpeechJumped))
    assert (found.at_ms, found.code) == (100.0, "unknown_voice")
    assert not cast("SpeechOver", await bench.until(SpeechOver)).code
    await bench.speech.close(100.0, "normal")


@pytest.mark.parametrize(("rate", "at_ms"), [(0.0, 200.0), (0.5, 200.0), (2.0, 50.0), (9.0, 50.0)])
async def test_the_place_of_what_is_spoken_now_is_that_of_the_new_rate(rate: float, at_ms: float) -> None:
    bench = Bench("Good morning.")
    await bench.until(Taken)
    bench.speech.take(jump(Style(rate=rate)))
    assert cast("SpeechJumped", await bench.until(SpeechJumped)).at_ms == at_ms
    await bench.speech.close(100.0, "normal")


async def test_a_jump_that_breaks_down_says_so_and_the_text_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench("Good morning.")
    await bench.until(Taken)

    def broken(*_place: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("cc_tts.mrcp.server.speech.place_of", broken)
    bench.speech.take(JumpSpeech(1, 100.0, 1, "word", Style()))
    assert cast("SpeechJumped", await bench.until(SpeechJumped)).code == EngineFailed.code
    assert not cast("SpeechOver", await bench.until(SpeechOver)).code
    await bench.speech.close(100.0, "normal")


PLS = (
    b'<lexicon version="1.0" alphabet="ipa" xml:lang="en" xmlns="http://www.w3.org/2005/01/pronunciation-lexicon">'
    b"<lexeme><grapheme>Xq</grapheme><alias>ten</alias></lexeme></lexicon>"
)


def process_with(metrics: Metrics, tracer: Tracer | None = None) -> MrcpProcess:
    return MrcpProcess(
        Config(),
        SpeechSource(cast("Any", FakeEngine()), Normalizer(), TtsConfig()),
        tenants=TenantQuotas(),
        accounting=AccountingLog(),
        metrics=metrics,
        clock=MonotonicClock(),
        new_id=lambda: "u",
        on_down=lambda: None,
        tracer=tracer,
    )


async def test_the_texts_of_a_session_are_one_trace() -> None:
    spans: list[Span] = []
    process = process_with(Metrics(), Tracer(export=spans.append))
    for number in (1, 2):
        process.take(OpenSpeech(number, "mrcp_1", "text", Style(), 8000), b"Hello.")
        await asyncio.sleep(0)
        process.take(CloseSpeech(number, 120.0, "normal"), b"")
    await process._tasks.ended()  # noqa: SLF001 - nothing else tells that both are closed
    process.take(Sessions(0, "mrcp_1"), b"")
    first, second, session = spans
    assert [span.name for span in spans] == ["mrcp.speak", "mrcp.speak", "mrcp.session"]
    assert (first.parent, second.parent, session.parent) == (session.context, session.context, None)
    assert (first.attributes["cctts.played_ms"], first.attributes["result"], first.error) == (120, "normal", "")
    assert "Hello" not in repr([span.attributes for span in spans])


async def test_a_session_with_a_fault_is_exported_whole_though_it_was_not_sampled() -> None:
    spans: list[Span] = []
    session = Tracer(export=spans.append, sample_ratio=0.0).begin("mrcp.session", kind="server")
    assert session is not None
    bench = Bench(span=session.child("mrcp.speak"))
    bench.engine.error = EngineFailed("gone")
    assert cast("SpeechOver", await bench.until(SpeechOver)).code == EngineFailed.code
    session.end()
    session.trace.close()
    await bench.speech.close(0.0, "engine_failed")
    assert [span.name for span in spans if span.name.startswith("mrcp.")] == ["mrcp.session", "mrcp.speak"]


@pytest.mark.parametrize(
    ("reason", "label"),
    [("normal", "normal"), ("cancelled", "cancelled"), ("shutdown", "hangup"), ("engine_failed", "error")],
)
async def test_a_session_that_ends_in_good_order_counts_as_no_error(reason: str, label: str) -> None:
    metrics = Metrics()
    process = process_with(metrics)
    process.take(OpenSpeech(1, "mrcp_1", "text", Style(), 8000), b"Hello.")
    process.take(CloseSpeech(1, 0.0, reason), b"")
    assert f'cctts_mrcp_speaks_total{{reason="{label}"}} 1.0' in metrics.render().decode()
    await process.stop()


async def test_a_lexicon_goes_with_its_session_though_that_ends_before_it_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: weakref.WeakSet[Any] = weakref.WeakSet()

    class Noted(CompiledLexicon):
        def __init__(self, lexicon: Lexicon) -> None:
            super().__init__(lexicon)
            compiled.add(self)
            num_compiled.append(1)

    num_compiled: list[int] = []
    monkeypatch.setattr("cc_tts.mrcp.server.client.CompiledLexicon", Noted)
    process = process_with(Metrics())
    process.take(DefineLexicon(1, "mrcp_1", "session:a"), PLS)
    process.take(Sessions(0, "mrcp_1"), b"")
    await until(lambda: num_compiled)
    await asyncio.sleep(0.05)
    gc.collect()
    assert not compiled
