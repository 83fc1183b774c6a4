"""The page of a call's report: what it shows, and that nothing in it is taken for markup."""

import re
from xml.etree import ElementTree as ET

import pytest

from cc_tts.callreport.page import render
from cc_tts.callreport.picture import Bar, CallPicture, PictureLane, PictureMark, PictureTable, Waveform

pytestmark = pytest.mark.unit

HOSTILE = "<script>alert(1)</script>&\"'"


def svg_of(page: str) -> ET.Element:
    found = re.search(r"<svg.*?</svg>", page, re.DOTALL)
    assert found is not None
    return ET.fromstring(found[0])


def page_of(**more: object) -> str:
    return render(CallPicture(title="Call c1", duration_s=10.0, facts=(), **more))  # type: ignore[arg-type]


def test_text_of_callers_is_no_markup() -> None:
    lane = PictureLane(
        HOSTILE, [Bar(begin_s=0, end_s=9, label=HOSTILE, detail=HOSTILE)], [PictureMark(at_s=1, label=HOSTILE)]
    )
    page = render(
        CallPicture(
            title=HOSTILE,
            duration_s=10.0,
            facts=[(HOSTILE, HOSTILE)],
            lanes=[lane],
            waveforms=[Waveform(name=HOSTILE, begin_s=0, step_s=1, peaks=(0.5,))],
            tables=[PictureTable(title=HOSTILE, head=(HOSTILE,), rows=((HOSTILE,),))],
            ladder=HOSTILE,
        )
    )
    assert "<script" not in page
    svg_of(page)


def test_nothing_is_fetched_and_no_script_runs() -> None:
    page = page_of(lanes=[PictureLane("call", [Bar(begin_s=0, end_s=1)])])
    assert "default-src 'none'" in page
    assert not re.search(r"\b(?:src|href)=", page)


def test_a_bar_lies_where_it_was() -> None:
    svg = svg_of(
        page_of(lanes=[PictureLane("a", [Bar(begin_s=0, end_s=5)]), PictureLane("b", [Bar(begin_s=5, end_s=10)])])
    )
    first, second = (each for each in svg.iter("rect"))
    assert float(first.attrib["x"]) + float(first.attrib["width"]) == pytest.approx(float(second.attrib["x"]), abs=0.2)
    assert float(first.attrib["y"]) < float(second.attrib["y"])


def test_a_label_that_has_no_room_is_cut() -> None:
    svg = svg_of(
        page_of(lanes=[PictureLane("a", [Bar(begin_s=0, end_s=2, label="a long sentence that was said by the voice")])])
    )
    assert next(text.text or "" for text in svg.iter("text") if text.attrib.get("class") == "in").endswith("…")


def test_chinese_takes_twice_the_room() -> None:
    said = "您好，欢迎致电客服中心。"
    svg = svg_of(
        page_of(lanes=[PictureLane("a", [Bar(begin_s=0, end_s=1.3, label=said), Bar(begin_s=2, end_s=9, label=said)])])
    )
    first, second = (text.text or "" for text in svg.iter("text") if text.attrib.get("class") == "in")
    assert len(first) < 10
    assert second == said


def test_marks_that_lie_over_each_other_share_a_label() -> None:
    marks = [
        PictureMark(at_s=1.0, label="INVITE"),
        PictureMark(at_s=1.01, label="100"),
        PictureMark(at_s=9.0, label="BYE"),
    ]
    svg = svg_of(page_of(lanes=[PictureLane("SIP", marks=marks)]))
    assert [text.text for text in svg.iter("text")][-2:] == ["INVITE, 100", "BYE"]
    assert len(list(svg.iter("circle"))) == 3


def test_a_lane_in_which_nothing_happened_is_left_out() -> None:
    assert "hold" not in page_of(lanes=[PictureLane("hold"), PictureLane("call", [Bar(begin_s=0, end_s=1)])])


@pytest.mark.parametrize("duration_s", [0.0, 0.3, 59.0, 4000.0, 86_400.0])
def test_an_axis_of_any_length_can_be_read(duration_s: float) -> None:
    svg = svg_of(render(CallPicture(title="t", duration_s=duration_s, facts=())))
    assert 1 <= len(list(svg.iter("line"))) <= 14
