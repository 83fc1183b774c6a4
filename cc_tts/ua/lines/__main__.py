"""The process of lines without SIP: ``python -m cc_tts.ua.lines --channel-fd N``, its settings as JSON on standard input."""

from typing import NoReturn

from cc_tts.ua.lines.agent import LineAgent
from cc_tts.ua.process import loop


def main() -> NoReturn:
    loop.run("lines", lambda settings, clock, send: LineAgent(settings, clock=clock, send=send))


if __name__ == "__main__":
    main()
