"""The messages between the server process and the UA process.

``call_id`` is the server's name of a call: the UA process makes it up for an incoming call, the server for an outgoing one.
"""

from typing import Final

from cc_tts.processes.channel import kinds_of
from cc_tts.ua.messages.commands import *  # noqa: F403 - all of them
from cc_tts.ua.messages.commands import Command
from cc_tts.ua.messages.reports import *  # noqa: F403 - all of them
from cc_tts.ua.messages.reports import Report
from cc_tts.ua.messages.settings import UaSettings as UaSettings
from cc_tts.ua.messages.to_dispatcher import *  # noqa: F403 - all of them

TO_UA: Final = kinds_of(Command)
FROM_UA: Final = kinds_of(Report)
