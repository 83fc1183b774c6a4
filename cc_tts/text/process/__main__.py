"""The text process: ``python -m cc_tts.text.process --channel-fd N``, its settings as JSON on standard input.

It is a process because a thread does not help: wetext keeps Python's lock for some 40 ms a clause, and the rules are Python.
Texts take turns, a slice each, and one that is new goes before those that have begun: a long text holds up nobody's first
words.

Threads: this one prepares the texts; the reader thread takes records off the channel.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cc_tts import logs
from cc_tts.processes import child
from cc_tts.text.chunker import Chunker, TextChunk
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.process.messages import TO_TEXT, CancelText, PreparedChunk, PrepareText, TextPrepared, TextSettings

log = logs.get("cc_tts.text.process")


@dataclass(slots=True)
class _Text:
    """A text that is being prepared."""

    request_id: int
    num_chars: int
    chunker: Chunker
    slices: Iterator[tuple[list[TextChunk], bool]]


class Preparer:
    """Prepares texts in turns. Runs on: one thread."""

    def __init__(self, normalizer: Normalizer) -> None:
        self._normalizer = normalizer
        self._new: deque[_Text] = deque()
        self._begun: deque[_Text] = deque()

    @property
    def has_work(self) -> bool:
        """Whether :meth:`tick` has something to do."""
        return bool(self._new or self._begun)

    def open(self, request: PrepareText, text: str) -> None:
        """Queue a text behind the waiting ones."""
        chunker = Chunker(self._normalizer, request.chunking, text, request.replacements)
        self._new.append(_Text(request.request_id, len(text), chunker, chunker.slices()))

    def cancel(self, request_id: int) -> None:
        """Stop preparing a text."""
        for line in (self._new, self._begun):
            for each in [each for each in line if each.request_id == request_id]:
                line.remove(each)

    def tick(self) -> TextPrepared:
        """Process one slice of the next text."""
        text = (self._new or self._begun).popleft()
        try:
            chunks, is_whole = next(text.slices)
        except Exception:  # a text that fails must not end the process
            log.exception("text_not_prepared", text_chars=text.num_chars)
            return TextPrepared(text.request_id, (), is_whole=True, has_failed=True)
        if not is_whole:
            self._begun.append(text)
        return TextPrepared(
            text.request_id,
            tuple(_packed(chunk) for chunk in chunks),
            is_whole=is_whole,
            has_placeholder=text.chunker.has_placeholder,
        )


def _packed(chunk: TextChunk) -> PreparedChunk:
    return PreparedChunk(
        len(chunk.source), chunk.spoken.encode("utf-8", "surrogatepass"), chunk.language, chunk.replaced
    )


def main() -> int:
    """Run until the server asks for the end or is gone; return the exit status."""
    return child.run("text", TextSettings, TO_TEXT, _start)


def _start(_settings: TextSettings, link: child.ChildLink) -> Callable[[], None]:
    normalizer = Normalizer()
    normalizer.warm_up()
    preparer = Preparer(normalizer)

    def work() -> None:
        for message, payload in link.news(0.0 if preparer.has_work else None):
            match message:
                case PrepareText():
                    preparer.open(message, payload.decode("utf-8", "surrogatepass"))
                case CancelText():
                    preparer.cancel(message.request_id)
        if preparer.has_work:
            prepared = preparer.tick()
            if prepared.chunks or prepared.is_whole:
                link.channel.send(prepared)

    return work


if __name__ == "__main__":
    sys.exit(main())
