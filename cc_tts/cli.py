"""The command line: ``cc-tts serve | worker | pool | drain | health | call | say | text | voices | model | pjsua2 |
config | check-config | doctor | completion``, and the commands for running servers of :mod:`cc_tts.operate`.

Only :mod:`argparse` is imported here: each command imports what it needs once it runs, so that ``--version`` and ``--help``
are quick.
"""

import argparse
import gc
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cc_tts import __version__

if TYPE_CHECKING:
    from cc_tts.config.schema import Config
    from cc_tts.speech.prompt import SequenceContent, TextContent
    from cc_tts.speech.reading import ReadChunk
    from cc_tts.voices.voice import Voice

EXIT_USAGE = 2
_SERVICES: Final = ("serve", "worker", "pool")
TELEPHONE_RATE_HZ: Final = 8000
_SAMPLES: Final = {
    "en": "Thank you for calling. Your balance is $12.50, due on March 4.",
    "de": "Danke für Ihren Anruf. Bitte bleiben Sie in der Leitung.",
    "es": "Gracias por su llamada. Por favor, espere en línea.",
    "fr": "Merci de votre appel. Veuillez rester en ligne.",
    "it": "Grazie per aver chiamato. La preghiamo di attendere in linea.",
    "pt": "Obrigado por ligar. Por favor, aguarde na linha.",
    "nl": "Bedankt voor het bellen. Blijft u aan de lijn.",
    "cmn": "感谢您的来电。您的余额是12元。",
    "ja": "お電話ありがとうございます。",
    "ko": "전화해 주셔서 감사합니다.",
    "ru": "Спасибо за звонок. Пожалуйста, оставайтесь на линии.",
}
"""The samples that ``cc-tts voices --say`` speaks, by primary language."""
PROGRESS_INTERVAL_S = 1.0
"""Interval of progress messages of a long command, s (unmeasured)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status (0 fine, 1 failed, 2 wrong usage or configuration)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["call"]:
        # the softphone is a user agent of its own and keeps pjsua2 out of this process
        os.execv(sys.executable, [sys.executable, "-m", "cc_tts.softphone", *arguments[1:]])  # noqa: S606
    is_service = arguments[:1] and arguments[0] in _SERVICES
    if is_service:
        _take_signals()
    if isinstance(sys.stdout, io.TextIOWrapper):  # as sys.stderr does: the terminal's encoding may lack a character
        sys.stdout.reconfigure(errors="backslashreplace")
    options = build_parser(arguments).parse_args(arguments)
    from cc_tts.config import load as configuration
    from cc_tts.errors import CcTtsError, ConfigError

    try:
        config = configuration.load(options.config, environ=os.environ, overrides=options.set, warn=_warn)
        status = int(options.run(options, config))
        return _left(status) if is_service else status
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
    except OSError as error:
        if error.filename is None:
            raise
        print(f"cc-tts: {error.filename}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE


def _take_signals() -> None:
    """Handle signals while modules are imported and files read; nothing has begun that must be ended. Later code sets its
    own handlers.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, lambda *_: os._exit(0))


def _left(status: int) -> int:
    from cc_tts.processes import threads

    return threads.leave(status)


def _warn(sentence: str) -> None:
    print(f"cc-tts: warning: {sentence}", file=sys.stderr)


def build_parser(arguments: Sequence[str], *, is_whole: bool = False) -> argparse.ArgumentParser:
    """Return the parser with every command, but only the arguments of the requested one, since some import much;
    ``is_whole``: of all.
    """
    from cc_tts.operate import arguments as operate

    parser = argparse.ArgumentParser(
        prog="cc-tts", description="A SIP user agent that speaks what REST or the dialplan says."
    )
    parser.add_argument("--version", action="version", version=f"cc-tts {__version__}")
    parser.set_defaults(config=None)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    common = argparse.ArgumentParser(add_help=False)
    file_help = "TOML file; `cc-tts config init` writes one with every key"
    common.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE", help=file_help)
    common.add_argument(
        "--set", action=_Collect, default=[], metavar="SECTION.KEY=VALUE", help="set one key; may be given often"
    )

    def add(name: str, text: str, fill: Callable[[argparse.ArgumentParser], None]) -> None:
        command = commands.add_parser(name, parents=[common], help=text)
        if is_whole or name in arguments[:1]:
            fill(command)

    def fill_voices(voices: argparse.ArgumentParser) -> None:
        from cc_tts.engines.enrolment.commands import add_voice_commands

        voices.add_argument("--language", help="only voices of this language")
        quick_help = "do not measure what the voices of the CPU cost here"
        voices.add_argument("--quick", action="store_true", help=quick_help)
        say_help = "speak a sentence with this voice into ID.wav, as a caller hears it"
        voices.add_argument("--say", metavar="ID", help=say_help)
        voices.set_defaults(run=_voices)
        add_voice_commands(voices, normalize=_normalized, parents=[common])

    def fill_model(model: argparse.ArgumentParser) -> None:
        from cc_tts.engines.cosyvoice.model.directory import add_model_commands

        add_model_commands(model, parents=[common])

    def fill_pjsua2(pjsua2: argparse.ArgumentParser) -> None:
        from cc_tts.doctor.build_command import add_pjsua2_commands

        add_pjsua2_commands(pjsua2, parents=[common])

    def fill_doctor(doctor: argparse.ArgumentParser) -> None:
        from cc_tts.doctor.command import add_doctor_arguments

        add_doctor_arguments(doctor)

    add("serve", "answer calls until Ctrl-C, then drain", lambda serve: serve.set_defaults(run=_serve))
    add("health", "whether the server, worker or pool of this container answers", _fill_health)
    add("worker", "speak for servers on other machines", _fill_worker)
    add("pool", "place workers on a Ray cluster, and tell servers of them", _fill_pool)
    phone = [_phone_parser()] if is_whole else []
    commands.add_parser(
        "call", parents=phone, add_help=False, help="a softphone: dial, record what is heard, measure it"
    )
    add("say", "speak text into a WAV file", _fill_say)
    add("text", "what is said of a text, and by which voice, without speaking it", _fill_text)
    add("voices", "list the voices of the configured engine; make your own", fill_voices)
    add("model", "check or fetch the files of the neural engine", fill_model)
    add("pjsua2", "compile the user agent's library for more calls than the PyPI wheel takes", fill_pjsua2)
    add(
        "config",
        "write the configuration files that come with cc-tts; name those of a backup",
        lambda config: _fill_config(config, common),
    )
    check_help = "check all that a start would, and print what is in force"
    add("check-config", check_help, lambda check: check.set_defaults(run=_check_config))
    add("doctor", "is this machine fit to serve, and if not, what to do", fill_doctor)
    operate.add_commands(add, run_completion=_completion)
    return parser


def _fill_health(health: argparse.ArgumentParser) -> None:
    health.description = (
        "Asks the service that is the first process here, or, where that is none, the server of this configuration."
    )
    ready_help = "of a server: also whether it takes calls, and the token of http.tokens"
    health.add_argument("--ready", action="store_true", help=ready_help)
    health.set_defaults(run=_health)


def _fill_worker(worker: argparse.ArgumentParser) -> None:
    listen_help = "an address of this machine and a port, such as 10.0.0.5:7400; the servers name it in tts.workers"
    worker.add_argument("--listen", required=True, metavar="HOST:PORT", help=listen_help)
    _add_generation_and_model(worker)
    worker.set_defaults(run=_worker)


def _add_generation_and_model(command: argparse.ArgumentParser) -> None:
    generation_help = "what tells these workers from older ones in tts.generations; default: the version of cc-tts"
    command.add_argument("--generation", default="", metavar="NAME", help=generation_help)
    command.add_argument("--model", default="", metavar="NAME", help="which of tts.models, if there are several")


def _fill_pool(pool: argparse.ArgumentParser) -> None:
    what = pool.add_mutually_exclusive_group(required=True)
    listen_help = (
        "an address of this machine and a port, such as 10.0.0.9:8090; the servers name it in cluster.pool_url"
    )
    what.add_argument("--listen", metavar="HOST:PORT", help=listen_help)
    what.add_argument("--down", action="store_true", help="end the workers of the cluster when they have spoken")
    _add_generation_and_model(pool)
    pool.set_defaults(run=_pool)


def _fill_say(say: argparse.ArgumentParser) -> None:
    say.add_argument("text", help="what to say; - reads standard input")
    say.add_argument("--ssml", action="store_true", help="the text is an SSML document")
    say.add_argument("-o", "--output", type=Path, required=True, metavar="WAV", help="the file to write")
    say.add_argument("--voice", help="a voice of `cc-tts voices`")
    say.add_argument("--language", help="BCP 47 tag, such as en-GB or zh")
    say.add_argument("--speed", type=float, help="0.5 to 2.0")
    say.add_argument("--instructions", metavar="TEXT", help="how to speak, for voices that take instructions")
    say.add_argument("--rate", type=int, default=TELEPHONE_RATE_HZ, metavar="HZ", help="sample rate of the file (8000)")
    say.set_defaults(run=_say)


def _fill_text(text: argparse.ArgumentParser) -> None:
    text.add_argument("text", help="the text; - reads standard input")
    text.add_argument("--ssml", action="store_true", help="the text is an SSML document")
    text.add_argument("--voice", help="a voice of `cc-tts voices`")
    text.add_argument("--language", help="BCP 47 tag, such as en-GB or zh")
    stream_help = "the text comes in tokens of N characters, as over .../stream"
    text.add_argument("--stream", type=int, metavar="N", help=stream_help)
    text.add_argument("--json", action="store_true", help="a JSON object a line: source, spoken, language, voice")
    text.set_defaults(run=_text)


class _Collect(argparse.Action):
    """``append``, into one list for the whole command line: ``cc-tts voices --set a.b=1 enrol --set c.d=2`` keeps both.

    A command below a command is parsed from nothing, and its values take the place of those from above.
    """

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, _option: str | None = None) -> None:
        self.default.append(values)
        setattr(namespace, self.dest, self.default)


def _serve(options: argparse.Namespace, config: "Config") -> int:
    from cc_tts.config import load as configuration
    from cc_tts.ua.client import ask_waiting_processes

    asked = ask_waiting_processes(config)  # the calls of a server before this one wait: what follows takes longer
    gc.disable()  # all modules stay: collections while they are imported free nothing, in a tenth of the time (measured)
    from cc_tts.server import serve

    gc.freeze()  # a full collection would hold up the event loop for 16 ms to look at them (measured)
    gc.enable()
    return serve(
        config,
        read_config=lambda: configuration.load(options.config, environ=os.environ, overrides=options.set),
        asked=asked,
    )


def _phone_parser() -> argparse.ArgumentParser:
    from cc_tts.softphone.arguments import build_parser

    return build_parser({})


def _completion(options: argparse.Namespace, _config: "Config") -> int:
    from cc_tts.operate import completion

    print(completion.script(build_parser([], is_whole=True), options.shell))
    return 0


def _health(options: argparse.Namespace, config: "Config") -> int:
    from cc_tts.config import load as configuration
    from cc_tts.doctor import health

    is_ready = options.ready
    if arguments := health.service_arguments(_SERVICES):
        options = build_parser(arguments).parse_args(arguments)
        config = configuration.load(options.config, environ=os.environ, overrides=options.set)
    options.service, options.ready = arguments[0] if arguments else "serve", is_ready
    fault = health.check(options, config)
    if fault:
        print(f"cc-tts: {fault}", file=sys.stderr)
        return 1
    print("ok")
    return 0


def _worker(options: argparse.Namespace, config: "Config") -> int:
    from cc_tts.engines.remote.host import run

    return run(config, options.listen, generation=options.generation, model=options.model)


def _pool(options: argparse.Namespace, config: "Config") -> int:
    from cc_tts.pool import command

    if options.down:
        return command.down(config)
    return command.run(config, options.listen, generation=options.generation, model=options.model)


def _content(text: str, words: "TextContent", *, is_ssml: bool) -> "TextContent | SequenceContent":
    """Return the text or the SSML document as a prompt; warnings about a document are printed."""
    from dataclasses import replace

    from cc_tts.speech.ssml import from_ssml

    if not is_ssml:
        return replace(words, text=text)
    content = from_ssml(text, words)
    for warning in content.warnings:
        print(f"line {warning.line}: {warning.detail}", file=sys.stderr)
    return content


def _text(options: argparse.Namespace, config: "Config") -> int:
    import asyncio

    import msgspec

    from cc_tts import logs
    from cc_tts.errors import ConfigError
    from cc_tts.operate.given import given_text

    if options.stream is not None and (options.ssml or options.stream < 1):
        raise ConfigError("--stream is the length of a token, at least 1, and not for --ssml")
    logs.configure(level="critical", json=False, process="text")  # main prints the error once
    for chunk in asyncio.run(_read(options, config, given_text(options.text))):
        if options.json:
            print(msgspec.json.encode(chunk).decode())
        else:
            source = " ".join(chunk.source.split())
            print(f"{chunk.language:8} {chunk.voice:16} {source} -> {chunk.spoken}")
    return 0


async def _read(options: argparse.Namespace, config: "Config", text: str) -> "list[ReadChunk]":
    from cc_tts import startup
    from cc_tts.speech.prompt import TextContent
    from cc_tts.speech.reading import ReadingSource

    words = TextContent("", options.voice, options.language)
    content = _content(text, words, is_ssml=options.ssml)
    async with startup.engine_without_model(config) as engine:
        source = ReadingSource(engine, config.tts)
        source.check_text(content)
        if options.stream is None:
            return await source.chunks(content)
        size = options.stream
        tokens = (text[start : start + size] for start in range(0, len(text), size))
        return await source.chunks_of_tokens(words, tokens)


def _say(options: argparse.Namespace, config: "Config") -> int:
    import asyncio
    import secrets

    from cc_tts import logs, wav_file
    from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED
    from cc_tts.errors import ConfigError
    from cc_tts.media import synthetic_label
    from cc_tts.operate.given import given_text

    text = given_text(options.text)
    if options.speed is not None and not MIN_SPEED <= options.speed <= MAX_SPEED:
        raise ConfigError(f"--speed is a factor from {MIN_SPEED} to {MAX_SPEED}")
    if not 8000 <= options.rate <= 48000:  # noqa: PLR2004
        raise ConfigError("--rate is a sample rate from 8000 to 48000 Hz")
    try:
        wav_file.check_path(options.output)
    except ValueError as error:
        raise ConfigError(f"--output: {error}") from None
    logs.configure(level="critical", json=False, process="say")  # main prints the error once
    pcm = asyncio.run(_speak(options, config, text))
    try:
        label = synthetic_label.wav_chunks(f"say_{secrets.token_hex(8)}", config.tts.producer)
        wav_file.write(options.output, pcm, rate_hz=options.rate, chunks=label)
    except OSError as error:
        raise ConfigError(f"cannot write {options.output}: {error.strerror}") from None
    print(f"{options.output}: {len(pcm) / 2 / options.rate:.2f} s at {options.rate} Hz")
    return 0


async def _speak(options: argparse.Namespace, config: "Config", text: str) -> bytes:
    import asyncio

    from cc_tts import startup
    from cc_tts.engines.factory import make_engine
    from cc_tts.errors import NoAudio
    from cc_tts.operate.given import given_instructions
    from cc_tts.speech.prompt import TextContent
    from cc_tts.speech.source import SpeechSource
    from cc_tts.text.normalizer import Normalizer

    doing = ["starting the engine"]
    engine = make_engine(config, purpose="say", on_starting=doing.append)
    source = SpeechSource(engine, Normalizer(), config.tts)
    words = TextContent(
        "", options.voice, options.language, options.speed, instructions=given_instructions(options.instructions)
    )
    content = _content(text, words, is_ssml=options.ssml)
    source.check_text(content)

    async def speak() -> bytes:
        if engine.elsewhere.follows_pool:
            await startup.wait_for_pool(config, doing.append)
        await startup.name_pool_workers(config, engine.elsewhere)
        await engine.start()
        voice = source.check(content)
        if words.instructions and voice is not None and not voice.takes_instructions:
            _warn(f"the voice {voice.id} takes no instructions: it speaks as it does without them")
        pcm = bytearray()
        async for chunk in source.open(content, rate_hz=options.rate):
            pcm += chunk.data
            doing.append(f"{len(pcm) / 2 / options.rate:.1f} s of speech")
        if not pcm:
            raise NoAudio("the text was synthesised, and not one sample came of it")
        return bytes(pcm)

    speaking, reported = asyncio.create_task(speak()), ""
    try:
        while not (await asyncio.wait({speaking}, timeout=PROGRESS_INTERVAL_S))[0]:
            if doing[-1] != reported:
                reported = doing[-1]
                print(f"cc-tts: {reported}", file=sys.stderr, flush=True)
        return speaking.result()
    finally:
        speaking.cancel()
        await engine.stop()


def _voices(options: argparse.Namespace, config: "Config") -> int:
    import asyncio

    from cc_tts import logs, startup
    from cc_tts.voices.catalog import normalised_language

    logs.configure(level="critical", json=False, process="voices")

    async def listing() -> "tuple[tuple[Voice, ...], tuple[str, ...]]":
        is_quick = options.quick or options.say is not None
        async with startup.engine_without_model(config, purpose="check" if is_quick else "measure") as engine:
            return engine.voices(), engine.voice_faults

    wanted = None if options.language is None else normalised_language(options.language)
    voices, faults = asyncio.run(listing())
    if options.say is not None:
        return _say_with(options.say, voices, config)
    has_models = len({voice.model for voice in voices if voice.model}) > 1
    who = f"{'voice':24} {'language':12} {'engine':10} {'kind':10} {'gender':7} {'Hz':>6}"
    print(
        f"{who} {'s/s':>6} {'streams':>7} use     instructions {'model    ' * has_models}description", file=sys.stderr
    )
    for voice in voices:
        if wanted is None or normalised_language(voice.language).startswith(wanted):
            cost = "-" if voice.cost is None else f"{voice.cost:.3f}"
            streams = "-" if voice.streams is None else str(voice.streams)
            who = f"{voice.id:24} {voice.language:12} {voice.engine:10} {voice.kind:10} {voice.gender:7} {voice.rate_hz:6}"
            use, told = "live" if voice.is_live else "prompts", "yes" if voice.takes_instructions else "-"
            model = f"{voice.model or '-':8} " * has_models
            print(f"{who} {cost:>6} {streams:>7} {use:7} {told:12} {model}{voice.description}")
    for fault in faults:
        print(f"cc-tts: a voice cannot be used: {fault}", file=sys.stderr)
    return 0


def _say_with(voice_id: str, voices: "tuple[Voice, ...]", config: "Config") -> int:
    """Return a ``cc-tts say`` command with a sentence in the voice's language."""
    from cc_tts.voices.catalog import normalised_language, unknown_voice

    voice = next((each for each in voices if each.id == voice_id), None)
    if voice is None:
        raise unknown_voice(voice_id, voices)
    text = _SAMPLES.get(normalised_language(voice.language).partition("-")[0], "1 2 3 4 5 6 7 8 9 10")
    output = Path(re.sub(r"[^\w.+-]+", "_", voice_id) + ".wav")
    said = {"text": text, "ssml": False, "output": output, "voice": voice_id, "language": voice.language}
    return _say(argparse.Namespace(**said, speed=None, rate=TELEPHONE_RATE_HZ, instructions=None), config)


def _normalized(text: str, language: str) -> str:
    from cc_tts.text.normalizer import Normalizer

    return Normalizer().normalize(text, language)


def _fill_config(config: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    from cc_tts.doctor.config_command import add_config_commands

    add_config_commands(config, parents=[common])


def _check_config(_options: argparse.Namespace, config: "Config") -> int:
    import asyncio

    from cc_tts import logs, startup
    from cc_tts.doctor.config_command import in_force
    from cc_tts.doctor.software import require_pjsua2

    logs.configure(level="critical", json=False, process="check-config")
    warnings, faults = asyncio.run(startup.check(config))
    if faults:
        raise faults[0]
    warnings += require_pjsua2(config)
    for warning in warnings:
        print(f"cc-tts: {warning}", file=sys.stderr)
    for line in in_force(config):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
