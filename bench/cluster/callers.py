"""Calls: a prompt, a pause in which the caller speaks or thinks, the next prompt, until somebody hangs up.

An utterance that no worker takes is asked for again every ``OVERLOAD_POLL_S`` for ``tts.overload_wait_ms``, as the player
does, and then counts as refused: the caller hears nothing, and the call goes on.
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, Final

from bench.cluster.servers import Server
from bench.cluster.workers import WINDOW_MS, Text
from bench.cluster.world import MS_PER_S, World
from cc_tts.audio import PcmChunk
from cc_tts.config.schema import TtsConfig
from cc_tts.engines.engine import SpeechStream
from cc_tts.errors import CcTtsError, EngineOverloaded
from cc_tts.speech.chunks import OVERLOAD_POLL_S

OVERLOAD_WAIT_MS: Final = TtsConfig().overload_wait_ms
FIRST_TEXT_MS: Final = 4000.0
"""Speech of ``tts.first_chunk_max_chars`` (60) characters, at 15 a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a call is like. Prompts and pauses are log-normal; the length of a call is exponential."""

    mean_call_s: float = 180.0
    prompt_median_s: float = 4.0
    prompt_sigma: float = 0.5
    min_prompt_s: float = 0.6
    max_prompt_s: float = 15.0
    pause_median_s: float = 5.0
    pause_sigma: float = 0.6

    def prompt_ms(self, draw: Random) -> float:
        """Speech of one prompt."""
        seconds = draw.lognormvariate(math.log(self.prompt_median_s), self.prompt_sigma)
        return MS_PER_S * min(max(seconds, self.min_prompt_s), self.max_prompt_s)

    def pause_ms(self, draw: Random) -> float:
        """From the end of a prompt to the next one."""
        return MS_PER_S * draw.lognormvariate(math.log(self.pause_median_s), self.pause_sigma)


class Ending(StrEnum):
    """How an utterance ended."""

    HEARD = "heard"
    HUNG_UP = "hung_up"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(slots=True)
class TenantTally:
    """What the callers of one tenant heard."""

    asked: int = 0
    refused: int = 0
    first_audio_ms: "array[float]" = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class Tally:
    """What callers heard. Lists that belong together have one entry an utterance whose first audio came."""

    asked: int = 0
    asked_again: int = 0
    """Utterances that waited for free capacity."""
    endings: dict[Ending, int] = field(default_factory=lambda: dict.fromkeys(Ending, 0))
    asked_at_ms: "array[float]" = field(default_factory=lambda: array("d"))
    first_audio_ms: "array[float]" = field(default_factory=lambda: array("d"))
    servers: "array[int]" = field(default_factory=lambda: array("H"))
    refused_at_ms: "array[float]" = field(default_factory=lambda: array("d"))
    refused_servers: "array[int]" = field(default_factory=lambda: array("H"))
    num_open: int = 0
    """Utterances that have not ended."""
    num_listening: int = 0
    lost: int = 0
    """Utterances under way in a worker that was lost."""
    gaps_ms: "array[float]" = field(default_factory=lambda: array("d"))
    """Silence of those that went on elsewhere and had been heard before."""
    waits_ms: "array[float]" = field(default_factory=lambda: array("d"))
    """From the question to the first audio of those that had not."""
    cut_ms: "array[float]" = field(default_factory=lambda: array("d"))
    """What was left out of those of whose last text chunk too much was heard to say it again."""
    tenants: defaultdict[str, TenantTally] = field(default_factory=lambda: defaultdict(TenantTally))
    wrong_lengths: int = 0
    """Utterances that lost no worker, were heard to the end, and were not as long as they should have been."""


class Call:
    """One call on one server."""

    def __init__(
        self, call_id: str, tenant: str, server: Server, tally: Tally, *, talk: Conversation, draw: Random
    ) -> None:
        self.id = call_id
        self.tenant = tenant
        self.server = server
        self.tally = tally
        self.talk = talk
        self._draw = draw
        self._utterance: Utterance | None = None
        self._is_over = False
        server.num_calls += 1

    def speak(self) -> None:
        """The next prompt."""
        if self._is_over:
            return
        length_ms = self.talk.prompt_ms(self._draw)
        first_ms = min(length_ms, FIRST_TEXT_MS)
        texts = [(first_ms, 0)] if first_ms == length_ms else [(first_ms, 0), (length_ms - first_ms, 1)]
        self._utterance = Utterance(self, texts)
        self._utterance.ask()

    def heard(self) -> None:
        """The prompt is over, or was not spoken."""
        self._utterance = None
        if not self._is_over:
            self.server.world.after(self.talk.pause_ms(self._draw), self.speak)

    def hang_up(self) -> None:
        """The call ends, whatever is being said."""
        self._is_over = True
        self.server.num_calls -= 1
        if self._utterance is not None:
            self._utterance.cancel()


class Utterance:
    """One prompt, and what of it the caller has heard. See :class:`bench.cluster.servers.Listener`."""

    def __init__(self, call: Call, texts: list[Text]) -> None:
        self._call = call
        self._texts = texts
        self._tally = call.tally
        self._world: World = call.server.world
        self._asked_ms = self._world.now_ms
        self._stream: SpeechStream | None = None
        self._listening: Coroutine[Any, Any, None] | None = None
        self._received_ms = 0.0
        self._dry_ms = -math.inf
        """When all that has come is played."""
        self._is_moving = False
        """Its worker is lost, and no other one has given anything yet."""
        self._was_lost = False
        self._ending: Ending | None = None
        self._of_tenant = self._tally.tenants[call.tenant]
        self._of_tenant.asked += 1
        self._tally.asked += 1
        self._tally.num_open += 1

    def ask(self) -> None:
        """Have it spoken."""
        if self._ending is None:
            self._call.server.poll(self)
            self._listening = self._listen()
            self.drive()

    def drive(self) -> None:
        """Take what came."""
        if self._listening is None:
            return
        try:
            self._listening.send(None)
        except StopIteration:
            self._listening = None
            self._said()
        except CcTtsError as error:
            self._listening = None
            self._fail(error)

    def worker_lost(self) -> None:
        """The worker that spoke is lost, which the reader notices when it has read what came before."""
        self._tally.lost += 1
        self._is_moving = self._was_lost = True
        self._world.at(self._dry_ms - WINDOW_MS, self._go_on)

    def cancel(self) -> None:
        """The caller has hung up."""
        if self._ending is not None:
            return
        self._end(Ending.HUNG_UP)
        if self._stream is not None:
            finish(self._stream.cancel())
        self.drive()

    def close(self) -> None:
        """The simulation is over."""
        if self._listening is not None:
            self._listening.close()

    def _go_on(self) -> None:
        self._call.server.poll(self)
        self.drive()

    async def _listen(self) -> None:
        """As the player does it."""
        server, tenant = self._call.server, self._call.tenant
        with server.hold_stream(tenant), server.tenants.asking_engine(tenant):
            stream = self._stream = server.open(self._call.id)
            for length_ms, index in self._texts:
                stream.push(str(length_ms), text_chunk_index=index)
            stream.end()
            async for chunk in stream:
                self._got(chunk)

    def _got(self, chunk: PcmChunk) -> None:
        now_ms, audio_ms = self._world.now_ms, chunk.duration_ms
        if self._ending is not None or not audio_ms:
            return
        if self._dry_ms == -math.inf:
            tally = self._tally
            tally.asked_at_ms.append(self._asked_ms)
            tally.first_audio_ms.append(now_ms - self._asked_ms)
            tally.servers.append(self._call.server.number)
            tally.num_listening += 1
            self._of_tenant.first_audio_ms.append(now_ms - self._asked_ms)
            if self._is_moving:
                tally.waits_ms.append(now_ms - self._asked_ms)
        elif self._is_moving:
            self._tally.gaps_ms.append(max(0.0, now_ms - self._dry_ms))
        self._is_moving = False
        self._received_ms += audio_ms
        self._dry_ms = max(self._dry_ms, now_ms) + audio_ms

    def _said(self) -> None:
        """All of it has come."""
        if self._ending is not None:
            return
        length_ms = sum(each_ms for each_ms, _ in self._texts)
        if self._is_moving:
            self._tally.cut_ms.append(length_ms - self._received_ms)
        self._tally.wrong_lengths += not self._was_lost and abs(self._received_ms - length_ms) > len(self._texts) * 2
        self._world.at(self._dry_ms, self._heard)

    def _heard(self) -> None:
        if self._ending is None:
            self._end(Ending.HEARD)
            self._call.heard()

    def _fail(self, error: CcTtsError) -> None:
        if self._ending is not None:
            return
        is_refused = isinstance(error, EngineOverloaded) and not self._received_ms
        if is_refused and self._world.now_ms - self._asked_ms < OVERLOAD_WAIT_MS:
            self._tally.asked_again += 1
            self._world.after(OVERLOAD_POLL_S * MS_PER_S, self.ask)
            return
        if is_refused:
            self._of_tenant.refused += 1
            self._tally.refused_at_ms.append(self._asked_ms)
            self._tally.refused_servers.append(self._call.server.number)
        self._end(Ending.REFUSED if is_refused else Ending.FAILED)
        self._call.heard()

    def _end(self, ending: Ending) -> None:
        self._ending = ending
        self._tally.endings[ending] += 1
        self._tally.num_open -= 1
        self._tally.num_listening -= self._dry_ms > -math.inf
        self._call.server.forget(self)


def finish(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run one that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")
