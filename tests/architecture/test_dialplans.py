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
    """Numbers of the plan."""
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
