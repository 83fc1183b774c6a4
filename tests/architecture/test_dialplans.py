"""Files for PBXs: the numbering plan is in all of them, their XML is well-formed, and what was not run says so."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.architecture.state_tables import ROOT

pytestmark = pytest.mark.architecture

DIALPLANS = ROOT / "dialplans"
FREESWITCH = [*sorted((DIALPLANS / "freeswitch").glob("*.xml")), ROOT / "sip/peers/freeswitch/freeswitch.xml"]
NAMES = [str(path.relative_to(ROOT)) for path in FREESWITCH]


def numbers() -> list[str]:
    plan = re.findall(r"^\| (\d{3}) \|", (DIALPLANS / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(plan) >= 5
    return plan


def elements(path: Path, tag: str) -> list[ET.Element]:
    """Elements of an XML file, which must be well-formed."""
    return list(ET.fromstring(path.read_text(encoding="utf-8")).iter(tag))


def actions(application: str) -> list[ET.Element]:
    """What the dialplan of FreeSWITCH does by this application."""
    found = elements(DIALPLANS / "freeswitch/dialplan.xml", "action")
    return [action for action in found if action.attrib["application"] == application]


def conditions() -> list[ET.Element]:
    """The numbers of FreeSWITCH's dialplan."""
    return elements(DIALPLANS / "freeswitch/dialplan.xml", "condition")


@pytest.mark.parametrize("path", FREESWITCH, ids=NAMES)
def test_freeswitch_includes_what_is_there(path: Path) -> None:
    for include in elements(path, "X-PRE-PROCESS"):
        if include.attrib["cmd"] == "include":
            name = include.attrib["data"]
            assert name.startswith("cc-tts/")
            assert (DIALPLANS / "freeswitch" / name.removeprefix("cc-tts/")).exists(), name


def test_freeswitch_dials_gateways_that_are_defined() -> None:
    defined = {gateway.attrib["name"] for gateway in elements(DIALPLANS / "freeswitch/gateway.xml", "gateway")}
    assert defined == {"tts-1", "tts-2"}
    for action in actions("bridge"):
        dialled = re.findall(r"sofia/gateway/([\w-]+)/", action.attrib["data"])
        assert dialled == ["tts-1", "tts-2"], "the first, then the second"


def test_freeswitch_knows_every_number_of_the_plan() -> None:
    own = {condition.attrib["expression"] for condition in conditions()}
    assert {f"^{number}$" for number in numbers()} <= own


def test_asterisk_knows_every_number_of_the_plan() -> None:
    text = (DIALPLANS / "asterisk/extensions.conf").read_text(encoding="utf-8")
    context = re.split(r"^\[", text, flags=re.MULTILINE)[1]
    assert context.startswith("tts]")
    assert re.findall(r"^exten => (\d+),1,", context, re.MULTILINE) == numbers()


def test_asterisk_jumps_to_contexts_that_exist() -> None:
    text = (DIALPLANS / "asterisk/extensions.conf").read_text(encoding="utf-8")
    contexts = set(re.findall(r"^\[([\w-]+)\]", text, re.MULTILINE))
    jumps = set(re.findall(r"Gosub\(([\w-]+),|[bB]\(([\w-]+)\^|Local/\w+@([\w-]+)", text))
    assert {name for found in jumps for name in found if name} <= contexts


def test_semicolons_of_extensions_begin_comments_or_are_escaped() -> None:
    for line in (DIALPLANS / "asterisk/extensions.conf").read_text(encoding="utf-8").splitlines():
        assert line.startswith(";") or not re.search(r"(?<!\\);", line), line


def test_freeswitch_gives_up_each_node_that_says_nothing() -> None:
    """call_timeout alone ends the whole bridge, so the second node would never be asked."""
    for bridge in (each.attrib["data"] for each in actions("bridge")):
        for leg in bridge.split("|"):
            assert re.match(r"\[leg_timeout=3[,\]]", leg), leg
    (whispered,) = (each for each in conditions() if each.attrib["expression"].startswith("^whisper"))
    assert "nolocal:absolute_codec_string=PCMU,PCMA" in {each.attrib.get("data") for each in whispered}


HEADERS = ("Text", "SSML", "Voice", "Language", "Then", "Delay", "Gather")
"""What an INVITE may carry of one leg, as X-TTS-…"""


def steps(name: str) -> list[tuple[str, str]]:
    """What an extension of FreeSWITCH's dialplan does, in order."""
    (extension,) = (
        each for each in elements(DIALPLANS / "freeswitch/dialplan.xml", "extension") if each.attrib["name"] == name
    )
    return [(each.attrib["application"], each.attrib.get("data", "")) for each in extension.iter("action")]


def test_freeswitch_begins_each_number_without_headers_of_an_earlier_leg() -> None:
    """What is exported stays on the caller's channel; an empty value takes it away."""
    cleared = {data for application, data in steps("tts") if application == "export"}
    assert {f"nolocal:sip_h_X-TTS-{name}=" for name in HEADERS} <= cleared
    exported = {each.attrib["data"].partition("=")[0] for each in actions("export")}
    tts = {name for name in exported if "X-TTS-" in name}
    assert tts <= {f"nolocal:sip_h_X-TTS-{name}" for name in HEADERS}, "what is added here is cleared there"


def test_freeswitch_hands_no_headers_on_to_extensions_of_others() -> None:
    for name in ("tts balance", "tts collect"):
        last: dict[str, str] = {}
        for application, data in steps(name):
            if application == "export":
                header, _, value = data.partition("=")
                last[header] = value
            elif application == "transfer":
                assert not any(last.values()), name


def test_freeswitch_takes_no_digits_of_an_earlier_leg() -> None:
    done: set[str] = set()
    for application, data in steps("tts collect"):
        if application == "bridge":
            assert {"sip_bye_h_X-TTS-Digits", "sip_bye_h_X-TTS-Cause"} <= done
        if application == "unset":
            done.add(data)
        assert "${sip_bye_h_X-TTS-Digits}" not in data, "they are looked at before they are used"


def test_freeswitch_goes_on_with_digits_only_if_there_are_some() -> None:
    (condition,) = (each for each in conditions() if each.attrib["field"] == "${sip_bye_h_X-TTS-Digits}")
    pattern = condition.attrib["expression"]
    (transfer,) = condition.iter("action")
    assert (transfer.attrib["application"], transfer.attrib["data"]) == ("transfer", "account-$1")
    for digits, goes_on in (("4711", True), ("12345678", True), ("", False), ("123", False), ("4711#", False)):
        match = re.match(pattern, digits)
        assert (match is not None and match[1] == digits) is goes_on, digits
    assert [each.attrib["application"] for each in condition.iter("anti-action")][-1] == "hangup"


def test_the_whispered_leg_has_the_caller_and_the_reference_of_its_call() -> None:
    done = steps("tts whispered")
    assert ("export", "nolocal:sip_h_X-Call-Ref=$1") in done
    assert ("set", "effective_caller_id_number=${uuid_getvar($1 caller_id_number)}") in done


def test_freeswitch_takes_keys_by_info_and_lets_go_of_callers_of_a_dead_node() -> None:
    profile = {each.attrib["name"]: each.attrib["value"] for each in elements(FREESWITCH[-1], "param")}
    assert profile["liberal-dtmf"] == "true"
    assert int(profile["rtp-timeout-sec"]) > 60, "longer than a pause of somebody who is muted"
    assert int(profile["rtp-hold-timeout-sec"]) >= int(profile["rtp-timeout-sec"])
    assert "rtcp-audio-interval-msec" not in profile, "then it offers rtcp-mux, and hears our reports no more"


def test_asterisk_says_a_text_on_one_leg_only() -> None:
    """A call that is transferred brings its variables along."""
    text = (DIALPLANS / "asterisk/extensions.conf").read_text(encoding="utf-8")
    for number in ("502", "503"):
        assert f"exten => {number},1,Set(TTS_TEXT=)\n" in text
    assert " same => n(done),Set(TTS_TEXT=)\n same => n,Return(${DIALSTATUS})\n" in text


def test_freeswitch_passes_on_hold_and_the_caller() -> None:
    profile = {each.attrib["name"]: each.attrib["value"] for each in elements(FREESWITCH[-1], "param")}
    assert profile["proxy-hold"] == "true"
    for gateway in elements(DIALPLANS / "freeswitch/gateway.xml", "gateway"):
        assert {each.attrib["name"]: each.attrib["value"] for each in gateway}["caller-id-in-from"] == "true"


@pytest.mark.parametrize("path", FREESWITCH[:-1], ids=NAMES[:-1])
def test_examples_say_what_of_them_was_run(path: Path) -> None:
    head = "\n".join(path.read_text(encoding="utf-8").splitlines()[:3])
    assert "Run with FreeSWITCH 1.10" in head
    assert "not run yet against a live PBX" in head
