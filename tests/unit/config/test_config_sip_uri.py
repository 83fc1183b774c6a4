"""Which targets the patterns of transfer.allowed take."""

import pytest

from cc_tts.config.sip_uri import AllowedTargets

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("pattern", "uri"),
    [
        ("sip:1001@pbx.example.com", "sip:1001@pbx.example.com"),
        ("sip:10??@pbx.example.com", "sip:1099@PBX.Example.com."),
        ("sip:+49*@trunk", "sip:+4930123@trunk;user=phone"),
        ("sip:*@*.example.com", "sip:anna@a.b.example.com;transport=tcp"),
        ("sip:*@10.0.0.5:5080", "sip:7@10.0.0.5:5080"),
        ("sip:*@10.0.0.5:*", "sip:7@10.0.0.5:9"),
        ("sip:*@10.0.0.5", "sip:7@10.0.0.5:5060"),
        ("sips:*@h", "SIPS:7@h:5061"),
        ("sip:queue", "sip:queue"),
        ("sip:10[1]@h", "sip:10[1]@h"),
        ("sip:11*@h", "sip:%31%31@h"),
    ],
)
def test_a_pattern_takes(pattern: str, uri: str) -> None:
    assert uri in AllowedTargets(["sip:nobody@h", pattern])


@pytest.mark.parametrize(
    ("pattern", "uri"),
    [
        ("sip:10??@pbx", "sip:100@pbx"),
        ("sip:10??@pbx", "sip:10000@pbx"),
        ("sip:10??@pbx", "sip:1001@pbx2"),
        ("sip:1001@pbx.example.com", "sip:1001@pbxxexample.com"),
        ("sip:*@pbx", "sip:1@pbx:5080"),
        ("sip:*@pbx", "sips:1@pbx"),
        ("sip:*@pbx", "sip:1@pbx;maddr=192.0.2.1"),
        ("sip:*@pbx", "sip:1@pbx;method=BYE"),
        ("sip:*@pbx", "sip:1@evil?Route=%3Csip:pbx%3E"),
        ("sip:*@pbx", "sip:1@evil;x=@pbx"),
        ("sip:*@pbx", "sip:1%40evil@pbx"),
        ("sip:*@pbx", "sip:900;phone-context=+1@pbx"),
        ("sip:1*@pbx", "sip:%39001@pbx"),
        ("sip:*@pbx", "tel:+1900"),
        ("sip:*@pbx", ""),
        ("*", "sip:1@pbx"),
        ("sip:1[0-9]@h", "sip:15@h"),
    ],
)
def test_a_pattern_does_not_take(pattern: str, uri: str) -> None:
    assert uri not in AllowedTargets([pattern])


def test_nobody_is_allowed_by_default() -> None:
    assert "sip:1001@pbx.example.com" not in AllowedTargets([])
