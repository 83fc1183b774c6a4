"""The UA process: ``python -m cc_tts.ua --channel-fd N``, its settings as JSON on standard input.

Threads: this one (the SIP thread) polls PJSIP and carries out commands; the reader thread takes records off the channel
and puts audio into playout buffers; PJMEDIA's clock thread takes frames out. Nothing else may run Python here
(pjsip/pjproject issue 4658).
"""

from collections.abc import Callable
from typing import Any, NoReturn

from cc_tts.clock import Clock
from cc_tts.processes.channel import Message
from cc_tts.ua import pjsua2_build
from cc_tts.ua.messages import UaSettings
from cc_tts.ua.pjsip.sip_thread import SipThread
from cc_tts.ua.process import loop
from cc_tts.ua.process.agent import Agent


def main() -> NoReturn:
    SipThread.enter()
    loop.run("ua", _agent)


def _agent(settings: UaSettings, clock: Clock, send: Callable[[Message], None]) -> Agent[Any]:
    pjsua2_build.select(build := pjsua2_build.chosen())
    from cc_tts.ua.endpoint import UserAgent

    return UserAgent(settings, build=build, clock=clock, send=send)


if __name__ == "__main__":
    main()
