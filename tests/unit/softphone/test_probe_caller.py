"""What the caller of a probe does, in made-up time, with agents of every temper."""

from collections.abc import Callable

import pytest

from cc_tts.clock import NS_PER_MS
from cc_tts.softphone.plan import DialPlan
from cc_tts.softphone.probe.caller import Caller
from cc_tts.softphone.probe.ear import PAUSE_MS
from cc_tts.softphone.probe.plan import CallerWords, ProbePlan
from cc_tts.softphone.rtp.packets import Keypress
from cc_tts.softphone.rtp.receiver import Interval

pytestmark = pytest.mark.unit

WORDS = CallerWords(b"s" * 32_000, b"i" * 16_000)  # 2 s and 1 s
STEP_MS = 20


class Agent:
    """An agent, its line and the time in one; ``temper`` is asked every 20 ms whether it speaks."""

    plan = DialPlan(uri="sip:agent@127.0.0.1")

    def __init__(self, temper: "Callable[[Agent], bool]", **plan: object) -> None:
        self.temper = temper
        self.now_ms = 0
        self.sent: list[tuple[int, int]] = []
        self.keys: list[str] = []
        self.speech: list[list[int]] = []  # begin, and the last instant with speech
        self.takes_keys = True
        self.caller = Caller(ProbePlan(**plan), WORDS, call=self, ear=self, clock=self)  # type: ignore[arg-type]

    def run(self, limit_s: int = 300) -> list[str]:
        """The whole script; returns the waits that were in vain."""
        for _ in self.caller.script():
            self.now_ms += STEP_MS
            assert self.now_ms < limit_s * 1000, "a wait without a bound"
            if self.temper(self):
                if not self.is_speaking:
                    self.speech.append([self.now_ms, self.now_ms])
                self.speech[-1][1] = self.now_ms
        return [each.wait for each in self.caller.expired]

    def now_ns(self) -> int:
        return self.now_ms * NS_PER_MS

    def say(self, octets: bytes) -> None:
        self.sent.append((self.now_ms, self.now_ms + len(octets) // 8))

    def press(self, keys: list[Keypress]) -> None:
        if not self.takes_keys:
            raise ValueError("no DTMF now")
        self.keys += [key.digit for key in keys]

    @property
    def said(self) -> list[Interval]:
        return [
            Interval(begin_ms * NS_PER_MS, end_ms * NS_PER_MS if end_ms <= self.now_ms else None)
            for begin_ms, end_ms in self.sent
        ]

    @property
    def is_speaking(self) -> bool:
        return bool(self.speech) and self.now_ms - self.speech[-1][1] < PAUSE_MS

    @property
    def begun_ns(self) -> int:
        return self.speech[-1][0] * NS_PER_MS if self.speech else 0

    @property
    def quiet_ms(self) -> float:
        """Since the caller has said anything; below 0 while the caller speaks."""
        return self.now_ms - (self.sent[-1][1] if self.sent else 0)


def polite(agent: Agent) -> bool:
    """It greets for 2 s, and answers for 6 s what the caller said 0.8 s ago; it is silent while the caller speaks."""
    if not agent.sent:
        return 200 <= agent.now_ms < 2200
    return 800 <= agent.quiet_ms < 6800


def test_a_polite_agent_is_greeted_interrupted_and_sent_a_key() -> None:
    agent = Agent(polite)
    assert agent.run() == []
    sentence, interruption = agent.sent
    assert sentence[0] == pytest.approx(2200 + PAUSE_MS, abs=2 * STEP_MS)
    assert interruption[0] == pytest.approx(sentence[1] + 800 + 1000, abs=2 * STEP_MS)
    assert agent.keys == ["1"]
    assert agent.caller.spoken == [WORDS.sentence, WORDS.interruption]


def test_rounds_are_said_one_after_the_other() -> None:
    agent = Agent(polite, rounds=3, key="")
    assert agent.run() == []
    assert agent.caller.spoken == [WORDS.sentence, WORDS.interruption] * 3
    assert agent.keys == []


@pytest.mark.parametrize(
    ("temper", "plan", "in_vain", "num_spoken", "remarks"),
    [
        (lambda _: False, {"wait_s": 4.0}, ["greeting", "answer"], 1, []),
        (lambda _: True, {"wait_s": 4.0}, ["end of the greeting", "stop"], 1, []),
        (lambda each: bool(each.sent) and polite(each), {"wait_s": 7.0}, ["greeting"], 2, []),
        (
            lambda each: polite(each) and (not each.sent or each.quiet_ms < 1200),
            {},
            [],
            1,
            ["an answer was over too soon to be interrupted"],
        ),
        (lambda each: polite(each) or (len(each.sent) == 1 and -500 <= each.quiet_ms < 6800), {}, [], 2, []),
    ],
    ids=["silent", "never stops", "waits for the caller", "answers shortly", "talks over the caller"],
)
def test_an_agent_of_another_temper(
    temper: Callable[[Agent], bool], plan: dict[str, object], in_vain: list[str], num_spoken: int, remarks: list[str]
) -> None:
    agent = Agent(temper, **plan)
    assert agent.run() == in_vain
    assert agent.caller.spoken == [WORDS.sentence, WORDS.interruption][:num_spoken]
    assert agent.caller.remarks == remarks
    if in_vain == ["greeting", "answer"]:
        assert agent.now_ms == pytest.approx(10_000, abs=100), "4 s, 2 s of words, 4 s"
        assert agent.keys == []


def test_a_key_that_cannot_be_pressed_is_told() -> None:
    agent = Agent(polite)
    agent.takes_keys = False
    agent.run()
    assert agent.caller.remarks == ["the key was not pressed: no DTMF now"]


def test_a_murmur_while_the_caller_speaks_is_no_answer() -> None:
    def temper(agent: Agent) -> bool:
        is_murmur = bool(agent.sent) and -1500 <= agent.quiet_ms < -1200
        return polite(agent) or (is_murmur and len(agent.sent) == 1)

    agent = Agent(temper)
    assert agent.run() == []
    assert agent.caller.spoken == [WORDS.sentence, WORDS.interruption]
    assert agent.caller.remarks == []
    sentence, interruption = agent.sent
    assert interruption[0] == pytest.approx(sentence[1] + 800 + 1000, abs=2 * STEP_MS)
