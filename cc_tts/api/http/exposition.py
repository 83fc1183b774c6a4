"""The metrics in the format that Prometheus asks for: its text format or OpenMetrics, which has exemplars, and gzip.

Runs on: the event loop.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from aiohttp import web
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics

from cc_tts import metrics

OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_OPEN_METRICS_VERSIONS: Final = ("", "1.0.0")
"""The values of the parameter ``version`` that match the format we send; without the parameter any version matches."""


def response(request: web.Request, render: Callable[[metrics.Encode], bytes]) -> web.Response:
    is_open = _wants_open_metrics(request.headers.get("Accept", ""))
    encode, content_type = (open_metrics, OPEN_METRICS) if is_open else (metrics.encode_text, metrics.CONTENT_TYPE)
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    answer = web.Response(body=render(encode), headers=headers)
    if any(name == "gzip" and weight for name, weight, _ in _items(request.headers.get("Accept-Encoding", ""))):
        answer.enable_compression(web.ContentCoding.gzip)
    return answer


def _wants_open_metrics(accept: str) -> bool:
    """Whether OpenMetrics is named, and plain text is not preferred. Clients that accept anything get plain text."""
    weights = {"text/plain": 0.0, "application/openmetrics-text": 0.0}
    for name, weight, version in _items(accept):
        if name == "text/plain" or (name in weights and version in _OPEN_METRICS_VERSIONS):
            weights[name] = max(weights[name], weight)
    return weights["application/openmetrics-text"] > 0 and max(weights, key=lambda name: weights[name]) != "text/plain"


def _items(header: str) -> Iterator[tuple[str, float, str]]:
    """Yield the items of Accept or Accept-Encoding: name, weight (RFC 9110 §12.4.2), and the parameter ``version``."""
    for item in header.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        known = dict(parameter.partition("=")[::2] for parameter in parameters)
        weight = 1.0
        with suppress(ValueError):
            weight = float(known.get("q", 1.0))
        yield name, weight, known.get("version", "").strip('"')
