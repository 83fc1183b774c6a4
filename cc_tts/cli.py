"""The command line: ``cc-tts serve | call | say | voices | check-config | doctor``."""

import argparse
import asyncio
import dataclasses
import os
import sys
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cc_tts import __version__, logs, tls_files
from cc_tts import config as configuration
from cc_tts.calls.prompt import TextContent
from cc_tts.calls.speech_source import SpeechSource
from cc_tts.clock import MonotonicClock
from cc_tts.config import Config
from cc_tts.doctor.command import add_doctor_command
from cc_tts.errors import CcTtsError, ConfigError
from cc_tts.text.normalizer import Normalizer
from cc_tts.tts.cosyvoice2.model_dir import add_model_commands
from cc_tts.tts.factory import make_engine
from cc_tts.voices.catalog import normalised_language
from cc_tts.voices.commands import add_voice_commands
from cc_tts.voices.enrolment import PromptEncoder

EXIT_USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status (0 fine, 1 failed, 2 wrong usage or configuration)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["call"]:
        # the softphone is a user agent of its own and keeps pjsua2 out of this process
        os.execv(sys.executable, [sys.executable, "-m", "cc_tts.ua.softphone", *arguments[1:]])  # noqa: S606
    options = _parser().parse_args(arguments)
    try:
        config = configuration.load(options.config, environ=os.environ, overrides=options.set)
        return int(options.run(options, config))
    except ConfigError as error:
        print(f"cc-tts: {error.detail}", file=sys.stderr)
        return EXIT_USAGE
    except CcTtsError as error:
        print(f"cc-tts: {error.title}: {error.detail}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cc-tts", description="A SIP user agent that speaks what REST or the dialplan says."
    )
    parser.add_argument("--version", action="version", version=f"cc-tts {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--config",
        type=Path,
        default=argparse.SUPPRESS,
        metavar="FILE",
        help="TOML file; configs/cc_tts.toml lists every key",
    )
    common.add_argument(
        "--set", action=_Collect, default=[], metavar="SECTION.KEY=VALUE", help="set one key; may be given often"
    )
    parser.set_defaults(config=None)

    serve = commands.add_parser("serve", parents=[common], help="answer calls until Ctrl-C, then drain")
    serve.set_defaults(run=_serve)

    commands.add_parser("call", add_help=False, help="a softphone: dial, record what is heard, measure it")

    say = commands.add_parser("say", parents=[common], help="speak a text into a WAV file")
    say.add_argument("text", help="what to say; - reads standard input")
    say.add_argument("-o", "--output", type=Path, required=True, metavar="WAV", help="the file to write")
    say.add_argument("--voice", help="a voice of `cc-tts voices`")
    say.add_argument("--language", help="BCP 47 tag, such as en-GB or zh")
    say.add_argument("--speed", type=float, help="0.5 to 2.0")
    say.add_argument("--rate", type=int, default=8000, metavar="HZ", help="sample rate of the file (8000)")
    say.set_defaults(run=_say)

    voices = commands.add_parser(
        "voices", parents=[common], help="list the voices of the configured engine; make your own"
    )
    voices.add_argument("--language", help="only voices of this language")
    voices.set_defaults(run=_voices)
    add_voice_commands(voices, make_encoder=_prompt_encoder, parents=[common])

    add_model_commands(commands, parents=[common])

    check = commands.add_parser(
        "check-config", parents=[common], help="check the configuration and print what is in force"
    )
    check.set_defaults(run=_check_config)

    add_doctor_command(commands, parents=[common])
    return parser


class _Collect(argparse.Action):
    """``append``, into one list for the whole command line: ``cc-tts voices --set a.b=1 enrol --set c.d=2`` keeps both.

    A command below a command is parsed from nothing, and its values take the place of those from above.
    """

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        _option_string: str | None = None,
    ) -> None:
        self.default.append(values)
        setattr(namespace, self.dest, self.default)


def _serve(_options: argparse.Namespace, config: Config) -> int:
    from cc_tts.server import serve

    return serve(config)


def _say(options: argparse.Namespace, config: Config) -> int:
    text = sys.stdin.read() if options.text == "-" else options.text
    if options.speed is not None and not 0.5 <= options.speed <= 2.0:  # noqa: PLR2004
        raise ConfigError("--speed is a factor from 0.5 to 2.0")
    if not 8000 <= options.rate <= 48000:  # noqa: PLR2004
        raise ConfigError("--rate is a sample rate from 8000 to 48000 Hz")
    logs.configure(level="warning", json=False, process="say")
    seconds = asyncio.run(_speak_to_file(options, config, text))
    print(f"{options.output}: {seconds:.2f} s at {options.rate} Hz")
    return 0


def _quiet(config: Config) -> Config:
    """The same with a log for people at a terminal, of a child process too."""
    return dataclasses.replace(config, log=dataclasses.replace(config.log, level="warning", json=False))


async def _speak_to_file(options: argparse.Namespace, config: Config, text: str) -> float:
    engine = make_engine(_quiet(config))
    source = SpeechSource(engine, Normalizer(), config.tts)
    await engine.start()
    try:
        content = TextContent(text, options.voice, options.language, options.speed)
        source.check(content)
        pieces = [piece.data async for piece in source.stream(content, rate_hz=options.rate)]
    finally:
        await engine.stop()
    data = b"".join(pieces)
    try:
        with options.output.open("wb") as raw, wave.open(raw, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(options.rate)
            file.writeframes(data)
    except OSError as error:
        raise ConfigError(f"cannot write {options.output}: {error.strerror}") from None
    return len(data) / 2 / float(options.rate)


def _voices(options: argparse.Namespace, config: Config) -> int:
    logs.configure(level="warning", json=False, process="voices")

    async def listing() -> tuple[Any, ...]:
        engine = make_engine(_quiet(config))
        await engine.start()
        try:
            return engine.voices()
        finally:
            await engine.stop()

    wanted = None if options.language is None else normalised_language(options.language)
    for voice in asyncio.run(listing()):
        if wanted is None or normalised_language(voice.language).startswith(wanted):
            print(f"{voice.id:24} {voice.language:12} {voice.engine:10} {voice.kind:10} {voice.description}")
    return 0


def _prompt_encoder(model: Path) -> PromptEncoder:
    from cc_tts.tts.cosyvoice2.speaker_encoder import CosyVoicePromptEncoder

    return CosyVoicePromptEncoder(model)


def _check_config(_options: argparse.Namespace, config: Config) -> int:
    for warning in tls_files.check(config.tls, now_s=MonotonicClock().wall_s()):
        print(f"cc-tts: {warning}", file=sys.stderr)
    for section in dataclasses.fields(config):
        value = getattr(config, section.name)
        if section.name == "routes":
            for user, route in value.items():
                print(f'[routes."{user}"]')
                _print_keys(route)
        else:
            print(f"[{section.name}]")
            _print_keys(value)
    return 0


def _print_keys(section: Any) -> None:
    for key in dataclasses.fields(section):
        value = getattr(section, key.name)
        if key.name == "tokens":
            shown = f"{len(value)} configured"
        elif not key.repr:
            shown = "(set)" if value else "(empty)"
        elif isinstance(value, bool):
            shown = str(value).lower()
        else:
            shown = str(list(value)) if isinstance(value, tuple) else repr(value)
        print(f"{key.name} = {shown}")
    print()


if __name__ == "__main__":
    sys.exit(main())
