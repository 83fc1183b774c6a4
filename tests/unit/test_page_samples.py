"""The comparison of the pages' samples with what comes: it must be able to fail."""

from pathlib import Path

import pytest

from tests.support.page_samples import blocks, document_faults, documents, line_faults

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("printed", "came"),
    [
        ('{"voice":"en-us"}', '{"voice":"hibari-heart"}'),
        ('{"state":"early","id":"call_1"}', '{"state":"early"}'),
        ('{"state":"early"}', '{"state":"early","id":"call_1"}'),
        ('{"calls":[{"state":"early"}]}', '{"calls":[{"state":"established"}]}'),
        ('{"text_chars":84,…}', '{"text_chars":62,"voice":"en-us"}'),
        ('{"stopped":["utt_1"]}', '{"stopped":["call_1"]}'),
        ('{"spoken_text":"Your balance"}', '{"spoken_text":""}'),
        ('{"draining":true}', '{"draining":1}'),
        ('{"detail":"lists all 138"}', '{"detail":"lists all 139"}'),
    ],
)
def test_another_value_or_field_is_a_fault(printed: str, came: str) -> None:
    (wanted,), (seen,) = documents(printed), documents(came)
    assert document_faults(wanted, seen)


def test_ids_times_and_what_is_cut_may_differ() -> None:
    (printed,) = documents('{"id":"call_a6…","time":1.5,"seq":3,"spoken_text":"One two","at":"/calls/call_a6",…}')
    (came,) = documents(
        '{"id":"call_0f","time":2.5,"seq":7,"spoken_text":"One two three","at":"/calls/call_b","more":[]}'
    )
    assert document_faults(printed, came) == []


@pytest.mark.parametrize(
    ("printed", "came"),
    [
        ("b.wav: 2.82 s at 8000 Hz", "b.wav: 3.00 s at 24000 Hz"),
        ("en-US  hibari-heart  $5 -> five dollars", "en-US  en-us  $5 -> five dollars"),
        ("RTP received  280 packets, 0 lost", "RTP received  280 packets, 3 lost"),
        ("200\ncall  sip:a", "404\ncall  sip:a"),
        ("one", "one\ntwo"),
    ],
)
def test_another_word_is_a_fault(printed: str, came: str) -> None:
    assert line_faults(printed, came)


def test_what_is_measured_may_differ() -> None:
    printed = "SSRC  0x589e7fd7 from 127.0.0.1:16384\nspurt  0.013 s to  1.372 s\n…"
    came = "SSRC  0x20e1fb95 from 127.0.0.1:31048\nspurt  0.039 s to  1.399 s\nspurt  2.5 s to  3.5 s\nrecording a.wav"
    assert line_faults(printed, came) == []


def test_an_answer_belongs_to_the_block_before_it(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("One:\n\n```sh\ncurl -s a\n```\n```\n{}\n```\n\nThen:\n\n```\n{}\n```\n")
    asked, answer, other = blocks(tmp_path, "page.md")
    assert (asked.place, asked.has_command, asked.answer) == ("page.md:3", True, "{}\n")
    assert not answer.has_command
    assert other.answer == ""
