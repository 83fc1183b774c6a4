"""The arguments of the commands for running servers. Only :mod:`argparse` is imported, so that help is quick."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from cc_tts.operate import completion

if TYPE_CHECKING:
    from cc_tts.config.schema import Config

COMMANDS: Final = {
    "drain": "have a running server drain, and wait until it has ended",
    "status": "how servers are: calls, processes, workers, what is wrong",
    "calls": "the calls that are up",
    "show": "one call: parties, times, quality, what was said",
    "hangup": "end a call",
    "say-to": "speak a text into a call",
    "trace": "the SIP messages of a call",
    "workers": "the speech workers and how busy they are",
    "tenants": "what tenants use, and their limits",
    "reload": "have servers read their configuration again",
    "loglevel": "what servers log: show it, or change it until the next reload",
    "top": "a live table of servers and calls",
}
LEVELS: Final = ("debug", "info", "warning", "error")
_CALL_HELP: Final = "its id or a unique beginning of it, its SIP Call-ID, or the number of the far side"


Run = Callable[[argparse.Namespace, "Config"], int]


def add_commands(
    add: Callable[[str, str, Callable[[argparse.ArgumentParser], None]], None], *, run_completion: Run
) -> None:
    """Add the commands to a parser, of which ``run_completion`` has all."""
    for name, text in COMMANDS.items():
        add(name, text, partial(fill, name))
    add("completion", "have a shell complete these commands", partial(completion.fill, run=run_completion))


def fill(name: str, command: argparse.ArgumentParser) -> None:
    """Add the arguments of one of :data:`COMMANDS`."""
    command.description = (
        "The server is found by http.host and http.port of the configuration, and asked with a token of http.tokens, "
        "or of the environment: CC_TTS_TOKEN."
    )
    server_help = "HOST:PORT or URL of a control API in place of the configured one; several times for a cluster"
    command.add_argument("--server", action="append", default=[], metavar="ADDRESS", help=server_help)
    if name not in ("drain", "top"):
        command.add_argument("--json", action="store_true", help="print JSON")
    if name in ("show", "hangup", "say-to", "trace"):
        command.add_argument("call", metavar="CALL", help=_CALL_HELP)
    match name:
        case "calls":
            command.add_argument("--all", action="store_true", help="also those that have ended lately")
            command.add_argument("--ids", action="store_true", help="ids only, one a line")
        case "hangup":
            code_help = "the status that a call which is not answered yet is refused with, 400 to 699"
            command.add_argument("--code", type=int, metavar="CODE", help=code_help)
        case "say-to":
            command.add_argument("text", metavar="TEXT", help="what to say; - reads standard input")
            command.add_argument("--ssml", action="store_true", help="the text is an SSML document")
            command.add_argument("--voice", help="a voice of the server")
            command.add_argument("--language", help="BCP 47 tag, such as en-GB or zh")
            command.add_argument("--now", action="store_true", help="in place of what is being said")
            command.add_argument("--wait", action="store_true", help="until it has been said")
        case "trace":
            command.add_argument("--full", action="store_true", help="also the messages themselves")
            command.add_argument(
                "--pcap", metavar="FILE", help="write a capture file for Wireshark instead; -: print it"
            )
        case "loglevel":
            command.add_argument("level", nargs="?", choices=LEVELS, help="of the server and the user agent")
            pjsip_help = "0 to 6: how much PJSIP logs"
            command.add_argument("--pjsip", type=int, choices=range(7), metavar="LEVEL", help=pjsip_help)
        case "top":
            command.add_argument("--interval", type=float, default=2.0, metavar="S", help="a new table each S (2)")
    command.set_defaults(run=_run, operation=name)


def _run(options: argparse.Namespace, config: "Config") -> int:
    from cc_tts.operate import commands

    return commands.run(options, config)
