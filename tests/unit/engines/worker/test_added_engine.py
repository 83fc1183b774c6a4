"""The engine that docs/add-an-engine.md shows speaks behind the worker's loop."""

import re
from pathlib import Path
from typing import Any, Final

import pytest

from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.engine_core import EngineCore, EngineLoader
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.errors import EngineOverloaded
from cc_tts.metrics import Metrics
from lab.waiting import until
from tests.fakes.worker_here import link_here, none_elsewhere

pytestmark = pytest.mark.unit

PAGE: Final = Path("docs/add-an-engine.md")


@pytest.fixture(name="shown", scope="module")
def _shown() -> dict[str, Any]:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"__name__": "shown"}
    exec(compile(program, str(PAGE), "exec"), names)
    return names


async def started(shown: dict[str, Any]) -> tuple[WorkerEngine, Any]:
    loader: EngineLoader = shown["HumLoader"]()
    core: EngineCore | None = loader.load(lambda _: None)
    assert core is not None
    engine = WorkerEngine(TtsConfig(engine="hum"), [link_here(core, loader)], none_elsewhere(), metrics=Metrics())
    await engine.start()
    return engine, core


async def test_it_says_each_text_chunk_and_ends(shown: dict[str, Any]) -> None:
    engine, core = await started(shown)
    assert [voice.id for voice in engine.voices()] == ["hum"]
    stream = engine.open("hum", 2.0)
    for index, text in enumerate(("Good morning.", "Bye!")):
        stream.push(text, text_chunk_index=index)
    stream.end()
    heard = [(chunk.text_chunk_index, chunk.duration_ms) async for chunk in stream]
    assert heard == [(0, 30.0)] * 11 + [(1, 30.0)] * 3
    assert core.streams == {}


async def test_it_waits_for_its_reader(shown: dict[str, Any]) -> None:
    engine, core = await started(shown)
    stream = engine.open("hum")
    stream.push("a" * 100, text_chunk_index=0)
    stream.end()
    await until(lambda: core.streams and not core.has_work)
    assert len(core.streams[1].letters) == 100 - 34
    assert sum([chunk.duration_ms async for chunk in stream]) == pytest.approx(100 * 60.0)


async def test_it_refuses_more_than_it_can_do(shown: dict[str, Any]) -> None:
    engine, core = await started(shown)
    streams = [engine.open("hum") for _ in range(32)]
    with pytest.raises(EngineOverloaded):
        await anext(aiter(engine.open("hum")))
    await until(lambda: len(core.streams) == 32)
    for stream in streams:
        await stream.cancel()
    await until(lambda: not core.streams)
    engine.open("hum")
