"""The report of a call for a collector, as the grammar of RFC 6035 has it."""

import dataclasses
from typing import Any

import pytest

from cc_tts.media.quality import VoipMetrics
from cc_tts.ua.quality.vq_report import Facts, body
from tests.support.vq_grammar import parsed

pytestmark = pytest.mark.unit

FACTS = Facts(
    sip_call_id="6dg37f1890463@pbx.example.com",
    tags=("ours", "theirs"),
    local="sip:4711@tts.example.com:5060",
    remote="sip:+4930123@pbx.example.com",
    is_incoming=True,
    addresses=(("192.0.2.1", 16_384), ("198.51.100.7", 4000)),
    ssrcs=(0x1A3B5C7D, 0x2468ABCD),
    began_s=1_794_567_890.2,
    until_s=1_794_567_950.9,
    codec="PCMA",
    clock_rate_hz=8000,
    heard=VoipMetrics(
        loss_rate=0.0213,
        burst_density=0.25,
        gap_density=0.004,
        burst_ms=2000,
        gap_ms=29_000,
        round_trip_ms=41,
        r_factor=82,
        mos_lq=4.12,
        mos_cq=4.03,
        jitter_buffer_ms=40,
        jitter_buffer_max_ms=80,
    ),
    jitter_ms=3.4,
    told=None,
)
GOLDEN = """\
VQSessionReport: CallTerm
CallID:6dg37f1890463@pbx.example.com
LocalID:<sip:4711@tts.example.com:5060>
RemoteID:<sip:+4930123@pbx.example.com>
OrigID:<sip:+4930123@pbx.example.com>
LocalAddr:IP=192.0.2.1 PORT=16384 SSRC=0x1a3b5c7d
RemoteAddr:IP=198.51.100.7 PORT=4000 SSRC=0x2468abcd
LocalGroup:tts.example.com
RemoteGroup:pbx.example.com
LocalMetrics:
Timestamps:START=2026-11-13T11:04:50Z STOP=2026-11-13T11:05:50Z
SessionDesc:PT=8 PD=PCMA SR=8000 FD=20 PPS=50 PLC=3 SSUP=off
JitterBuffer:JBA=3 JBN=40 JBM=80
PacketLoss:NLR=2.1 JDR=0.0
BurstGapLoss:BLD=25.0 BD=2000 GLD=0.4 GD=29000 GMIN=16
Delay:RTD=41 ESD=0 IAJ=3
QualityEst:RCQ=82 MOSLQ=4.1 MOSCQ=4.0
DialogID:6dg37f1890463@pbx.example.com;to-tag=ours;from-tag=theirs
"""


def test_the_report_of_an_incoming_call() -> None:
    written = body(FACTS, is_over=True)
    assert written == GOLDEN.replace("\n", "\r\n")
    report = parsed(written)
    assert report.remote is None
    assert report.dialog == (FACTS.sip_call_id, {"to-tag": "ours", "from-tag": "theirs"})
    goes_on = body(FACTS, is_over=False)
    assert goes_on == written.replace("VQSessionReport: CallTerm", "VQIntervalReport")
    assert parsed(goes_on).is_interval


def test_what_the_far_side_says_is_in_it() -> None:
    told = VoipMetrics(loss_rate=0.5, signal_dbm=-18, noise_dbm=-60, echo_return_loss_db=55, mos_lq=3.4)
    report = parsed(body(dataclasses.replace(FACTS, told=told), is_over=True))
    assert report.remote is not None
    assert report.remote["PacketLoss"] == {"NLR": "50.0", "JDR": "0.0"}
    assert report.remote["Signal"] == {"SL": "-18", "NL": "-60", "RERL": "55"}
    assert report.remote["QualityEst"] == {"MOSLQ": "3.4"}


def test_a_call_that_we_placed_is_ours() -> None:
    report = parsed(body(dataclasses.replace(FACTS, is_incoming=False), is_over=True))
    assert report.session["OrigID"] == "<sip:4711@tts.example.com:5060>"
    assert report.dialog == (FACTS.sip_call_id, {"to-tag": "theirs", "from-tag": "ours"})


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"heard": VoipMetrics(), "jitter_ms": None, "codec": "L16"}, id="nothing was measured"),
        pytest.param({"tags": ("", ""), "ssrcs": (0, 0)}, id="nothing is known of the dialog"),
        pytest.param({"remote": 'tel:"x"\r\nOrigID: <sip:evil@example.com>'}, id="a far side that writes lines"),
        pytest.param({"remote": "", "local": "<>"}, id="parties that are no URIs"),
    ],
)
def test_it_keeps_to_the_grammar(change: dict[str, Any]) -> None:
    parsed(body(dataclasses.replace(FACTS, **change), is_over=True))


def test_a_far_side_does_not_make_it_too_long_to_be_sent() -> None:
    assert parsed(body(dataclasses.replace(FACTS, tags=("ours", "t" * 256)), is_over=True)).dialog is not None
    assert parsed(body(dataclasses.replace(FACTS, tags=("ours", "t" * 257)), is_over=True)).dialog is None


def test_secrets_of_uris_are_masked() -> None:
    written = body(
        dataclasses.replace(FACTS, remote="sip:annc@host;play=secret.wav", local="sip:user:password@host"), is_over=True
    )
    assert "secret" not in written
    assert "password" not in written
