"""What the hostile bench makes: the same from the same seed, never an address beyond loopback, and no seed that fails."""

import random
import re
import struct

import pytest

from bench.hostile.answers import CALLEE, Here, Scene, Step, registered, reply, to_register, to_request
from bench.hostile.media import OWN, bad_rtcp, bad_rtp, info_body, json_body, mutate_sdp, offer, rtp
from bench.hostile.peer import header, on_loopback, repeated
from bench.hostile.sip import MUTATIONS, Mutation, Sip, mutate, spoil

pytestmark = pytest.mark.unit

SEEDS = range(400)


def invite() -> Sip:
    headers = [
        ("Via", "SIP/2.0/UDP 127.0.0.1:9;branch=z9hG4bK1"),
        ("From", "<sip:a@127.0.0.1>;tag=1"),
        ("To", "<sip:b@127.0.0.1>"),
        ("Call-ID", "x"),
        ("CSeq", "1 INVITE"),
    ]
    return Sip("INVITE sip:b@127.0.0.1:5060 SIP/2.0", headers, offer(4000))


def made(seed: int) -> tuple[bytes, ...]:
    rng = random.Random(seed)
    sip = invite()
    sip.body = mutate_sdp(rng, sip.body)
    mutate(rng, sip, OWN)
    media = (bad_rtp(rng, seq=seed, ssrc=1)[1], bad_rtcp(rng, ssrc=1)[1])
    texts = (info_body(rng)[1].encode("latin-1"), json_body(rng, {"text": "x"}))
    return (on_loopback(spoil(rng, sip.render())), *media, *texts)


def test_the_same_seed_makes_the_same() -> None:
    assert [made(seed) for seed in SEEDS] == [made(seed) for seed in SEEDS]
    assert len({made(seed)[0] for seed in SEEDS}) > len(SEEDS) * 0.9


@pytest.mark.parametrize("change", sorted(set(MUTATIONS) | set(OWN), key=str))
def test_each_mutation_changes_the_message(change: Mutation) -> None:
    before = invite().render()
    changed = 0
    for seed in range(40):
        sip = invite()
        change(random.Random(seed), sip)
        changed += sip.render() != before
    assert changed > 20


def test_no_address_beyond_loopback() -> None:
    for seed in SEEDS:
        for found in re.findall(rb"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}", made(seed)[0]):
            assert found.startswith((b"127.", b"0.0.0.0")), (seed, found)


def test_an_unchanged_message_is_a_good_one() -> None:
    text = invite().render().decode()
    head, _, body = text.partition("\r\n\r\n")
    assert header(head, "Content-Length|l") == str(len(body))
    assert head.startswith("INVITE sip:b@127.0.0.1:5060 SIP/2.0\r\nVia: ")
    assert struct.unpack("!BBHII", rtp(seq=65537, ssrc=7)[:12]) == (0x80, 0, 1, 65537 * 160, 7)


HERE = Here("127.0.0.1", 5070, 4000)
REGISTER = (
    invite()
    .render()
    .decode()
    .replace("INVITE", "REGISTER")
    .replace("\r\n\r\n", "\r\nContact: <sip:a@127.0.0.1:1>\r\n\r\n")
)


def rendered(steps: list[Step]) -> list[bytes]:
    return [on_loopback(step.sip.render()) for step in steps]


@pytest.mark.parametrize("scene", [*sorted(set(CALLEE), key=str), to_request, to_register])
def test_answers_by_seed_and_on_loopback(scene: Scene) -> None:
    request = REGISTER if scene is to_register else invite().render().decode()
    for seed in range(100):
        answers = rendered(scene(random.Random(seed), request, HERE))
        assert answers
        assert answers == rendered(scene(random.Random(seed), request, HERE))
        for found in re.findall(rb"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}", b"".join(answers)):
            assert found.startswith((b"127.", b"0.0.0.0")), (seed, found)


def test_a_good_answer_repeats_what_the_request_says() -> None:
    request = invite().render().decode()
    answer = reply(request, "200 OK", HERE).render().decode()
    assert repeated(answer) == repeated(request)
    assert header(answer, "To") == "<sip:b@127.0.0.1>;tag=peer"
    assert header(registered(REGISTER, HERE, "6").render().decode(), "Contact") == "<sip:a@127.0.0.1:1>;expires=6"
