"""How /metrics is asked for: the format by Accept, gzip by Accept-Encoding."""

import gzip

import pytest
from aiohttp import ClientSession
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from cc_tts.api.http.exposition import OPEN_METRICS
from cc_tts.metrics import CONTENT_TYPE
from tests.fakes.running_api import RunningApi

pytestmark = pytest.mark.integration

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""What Prometheus 3 sends."""


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", CONTENT_TYPE),
        ("text/html", CONTENT_TYPE),
        (PROMETHEUS, OPEN_METRICS),
        ("application/openmetrics-text", OPEN_METRICS),
        ("application/openmetrics-text; version=9.9.9", CONTENT_TYPE),
        ("application/openmetrics-text; version=nonsense", CONTENT_TYPE),
        ("application/openmetrics-text;q=0", CONTENT_TYPE),
        ("application/openmetrics-text;q=0.1, text/plain;q=0.9", CONTENT_TYPE),
    ],
)
async def test_the_format_is_the_one_that_is_accepted(api: RunningApi, accept: str, content_type: str) -> None:
    answered = await api.ask("GET", "/metrics", headers={"Accept": accept})
    assert (answered.status, answered.headers["Content-Type"]) == (200, content_type)
    assert answered.raw.endswith(b"# EOF\n") == (content_type == OPEN_METRICS)


async def test_openmetrics_is_what_its_parser_reads(api: RunningApi) -> None:
    answered = await api.ask("GET", "/metrics", headers={"Accept": PROMETHEUS})
    parsed = text_string_to_metric_families(answered.raw.decode())  # type: ignore[no-untyped-call]
    families = {family.name: family.type for family in parsed}
    assert families["cctts_time_to_first_audio_seconds"] == "histogram"
    assert families["cctts_calls"] == "counter"


@pytest.mark.parametrize(
    ("accepted", "coding"), [("gzip, deflate", "gzip"), ("deflate", None), ("gzip;q=0", None), ("identity", None)]
)
async def test_the_series_are_gzipped_for_whoever_takes_it(api: RunningApi, accepted: str, coding: str | None) -> None:
    async with (
        ClientSession(auto_decompress=False) as client,
        client.get(f"http://127.0.0.1:{api.port}/metrics", headers={"Accept-Encoding": accepted}) as response,
    ):
        body = await response.read()
    assert response.headers.get("Content-Encoding") == coding
    text = gzip.decompress(body) if coding else body
    assert b"\ncctts_draining 0.0\n" in text
    assert not coding or len(body) < len(text) / 3
