"""One synthesis that any number of listeners read while it is made.

::

    engine's PieceStream ─▸ _make ─▸ pieces ─▸ read(listener 1) · read(listener 2) …
                              ▲ the listener that is furthest asks for the next piece

The fastest listener sets the pace, as it would alone; a slower one reads later what is there already, nobody waits for it.
While newcomers may join, all pieces are held, which is the prompt's own length at most; after :meth:`stop_sharing` only
those that somebody has still to read. When the last listener leaves, the synthesis is cancelled, or goes on to its end
unattended if the cache wants it. Runs on: the event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from cc_tts.audio import AudioFormat
from cc_tts.speech.source import PieceStream, SpeechPiece

UNATTENDED_AHEAD_MS: Final = 60_000.0
"""What an engine is told of a prompt that nobody listens to: there is no hurry."""


class Reader(Protocol):
    """How far a listener is."""

    position: int
    """Pieces read."""
    read_bytes: int
    joined: bool
    """It came to a synthesis that another listener had begun."""


class Owner(Protocol):
    """Who is told of a recording."""

    def holds(self, num_bytes: int) -> None:
        """Recordings hold so much more than before, or less."""

    def grown(self, recording: "Recording") -> None:
        """It has one piece more."""

    def may_finish_unattended(self, recording: "Recording") -> bool:
        """Nobody listens any more: whether it goes on."""
        ...

    def ended(self, recording: "Recording") -> None:
        """It is whole, has failed, or was cancelled."""


class Recording:
    """See the module."""

    def __init__(self, stream: PieceStream, owner: Owner, *, key: str, rate_hz: int) -> None:
        self.key = key
        self.rate_hz = rate_hz
        self.made_bytes = 0
        self.is_shared = True
        self.is_whole = False
        self.is_unattended = False
        self._stream = stream
        self._owner = owner
        self._format = AudioFormat(rate_hz)
        self._pieces: list[SpeechPiece] = []
        self._num_dropped = 0
        self._num_wanted = 0
        self._failure: Exception | None = None
        self._is_over = False
        self._leads: dict[Reader, float] = {}
        self._hurried: Reader | None = None
        self._readers: set[Reader] = set()
        self._news = asyncio.Event()
        self._demand = asyncio.Event()
        self._maker: asyncio.Task[None] | None = None

    @property
    def pieces(self) -> tuple[SpeechPiece, ...]:
        """All of them, while it is shared."""
        return tuple(self._pieces)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is made."""
        return self._is_over

    def join(self, reader: Reader) -> None:
        """One more listens, from the beginning."""
        self._readers.add(reader)

    async def read(self, reader: Reader) -> SpeechPiece | None:
        """Give the next piece; ``None`` at the end, and to a listener that has left.

        Raises:
            Exception: whatever the synthesis failed with, after the pieces that were made; at once to a listener that
                joined and has heard nothing yet, so that it can begin again.
        """
        while reader in self._readers:
            if self._failure is not None and reader.joined and not reader.position:
                raise self._failure
            place = reader.position - self._num_dropped
            if place < len(self._pieces):
                piece = self._pieces[place]
                reader.position += 1
                reader.read_bytes += len(piece.data)
                self._drop_read()
                return piece
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                break
            self._want(reader.position + 1)
            await self._news.wait()
        return None

    def playing(self, reader: Reader, ahead_ms: float) -> None:
        """``reader``'s line holds so much, ms. The engine hears of the listener that will run dry first."""
        lead_ms = ahead_ms - self._format.ms_for_bytes(reader.read_bytes)
        self._leads[reader] = lead_ms
        if self._hurried is None or self._hurried not in self._leads:
            self._hurried = reader
        if reader is self._hurried or lead_ms < self._leads[self._hurried]:
            self._hurried = min(self._leads, key=self._leads.__getitem__)
            made_ms = self._format.ms_for_bytes(self.made_bytes)
            self._stream.playing(max(0.0, self._leads[self._hurried] + made_ms))

    def stop_sharing(self) -> None:
        """Nobody joins from now on, and what everybody has read is let go."""
        self.is_shared = False
        self._drop_read()

    async def leave(self, reader: Reader) -> None:
        """``reader`` is done; safe to call twice."""
        if reader not in self._readers:
            return
        self._readers.discard(reader)
        self._leads.pop(reader, None)
        self._tell()  # it may be waiting in another task
        self._drop_read()
        if self._readers:
            return
        if not self._is_over:
            if self._owner.may_finish_unattended(self):
                self.is_unattended = True
                self._stream.playing(UNATTENDED_AHEAD_MS)
                self._want(self._num_dropped + len(self._pieces) + 1)
            else:
                await self.cancel()

    async def cancel(self) -> None:
        """Stop the synthesis; listeners that are left get what was made."""
        if self._maker is not None:
            self._maker.cancel()
        self._end()
        await self._stream.cancel()

    def _want(self, num_pieces: int) -> None:
        self._num_wanted = max(self._num_wanted, num_pieces)
        self._demand.set()
        if self._maker is None:
            self._maker = asyncio.create_task(self._make(), name="prompt recording")

    async def _make(self) -> None:
        try:
            async for piece in self._stream:
                self._pieces.append(piece)
                self.made_bytes += len(piece.data)
                self._owner.holds(len(piece.data))
                self._owner.grown(self)
                self._tell()
                if self._is_vain:
                    break
                while self._num_dropped + len(self._pieces) >= self._num_wanted and not self.is_unattended:
                    self._demand.clear()
                    await self._demand.wait()
            self.is_whole = not self._is_vain
        except Exception as error:  # noqa: BLE001 - raised where the audio is read
            self._failure = error
        self._end()
        await self._stream.cancel()

    @property
    def _is_vain(self) -> bool:
        """Nobody listens, and nobody could."""
        return not self._readers and not self.is_shared

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._owner.ended(self)
            self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _drop_read(self) -> None:
        if self.is_shared:
            return
        made = self._num_dropped + len(self._pieces)
        first = min((reader.position for reader in self._readers), default=made)
        dropped = self._pieces[: first - self._num_dropped]
        del self._pieces[: len(dropped)]
        self._num_dropped += len(dropped)
        self._owner.holds(-sum(len(piece.data) for piece in dropped))


PieceMaker = Callable[[], PieceStream]
"""Begins to synthesise; raises what :meth:`cc_tts.speech.source.SpeechSource.open` does."""
