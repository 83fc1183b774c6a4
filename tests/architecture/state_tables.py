"""What the documents print from the code: state tables, metrics, problem codes, events.

``python -m tests.architecture.state_tables`` rewrites them between ``<!-- table:NAME -->`` and ``<!-- /table -->``.
"""

import ast
import importlib
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from cc_tts import errors
from cc_tts.api.routes import ROUTES
from cc_tts.calls.call_state import CALL_TABLE, UTTERANCE_TABLE, CallEvent, CallState, UtteranceEvent, UtteranceState
from cc_tts.calls.events.types import EVENTS, CallData
from cc_tts.media.playout_events import PlayoutOverflow
from cc_tts.metrics import Metrics
from cc_tts.mrcp.control.states import SYNTH_TABLE, SynthEvent, SynthState
from cc_tts.processes.channel import Message
from cc_tts.processes.peer import PROCESS_TABLE, ProcessEvent, ProcessState
from cc_tts.ua.leg_state import LEG_TABLE, LegEvent, LegState
from lab import voices_table

ROOT: Final = Path(__file__).resolve().parents[2]
NOT_OVER_HTTP: Final = (errors.ConfigError, errors.ProcessFailed, PlayoutOverflow)
"""With what derives from them: answered on the command line, on SIP, and in the log only."""
MESSAGE_MODULES: Final = {
    "cc_tts.processes.channel": "server and each child",
    "cc_tts.processes.adoption": "next server and UA",
    "cc_tts.ua.messages.commands": "server and UA",
    "cc_tts.ua.messages.reports": "server and UA",
    "cc_tts.ua.messages.to_dispatcher": "server and dispatcher",
    "cc_tts.engines.engine_core": "server and worker",
    "cc_tts.engines.speech_chunk": "server and worker",
    "cc_tts.engines.worker.messages": "server and worker",
    "cc_tts.text.process.messages": "server and text process",
    "cc_tts.vad.messages": "server and VAD process",
    "cc_tts.recorder.messages": "UA and recorder",
    "cc_tts.mrcp.messages": "server and MRCP process",
}
T = TypeVar("T")
_MARKERS: Final = re.compile(r"(<!-- table:([a-z-]+) -->\n).*?(<!-- /table -->)", re.DOTALL)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def state_table(table: Mapping[tuple[Any, Any], StrEnum], states: type[StrEnum], events: type[StrEnum]) -> str:
    """A row a state, a column an event; a dash where the event is refused."""
    rows = [[f"**{state}**", *(str(table.get((state, event), "–")) for event in events)] for state in states]
    return markdown(["state \\ event", *(str(event) for event in events)], rows)


def metrics_table() -> str:
    """Every series of ``cc_tts/metrics.py`` in the order of declaration."""
    rows = []
    for value in vars(Metrics()).values():
        describe: Callable[[], Any] | None = getattr(value, "describe", None)
        if describe is None:
            continue
        (family,) = describe()
        suffix = "_total" if family.type == "counter" else ""
        labels = ", ".join(value._labelnames) or "–"
        rows.append([f"`{family.name}{suffix}`", family.type, labels, family.documentation])
    return markdown(["series", "type", "labels", "meaning"], rows)


@cache
def error_names() -> Mapping[str, str]:
    """The module of every class of the exception tree, as its source has it; nothing is imported for this."""
    return {
        name: module for name, module in _descendants(errors.CcTtsError.__name__) if name != errors.CcTtsError.__name__
    }


def _descendants(root: str) -> list[tuple[str, str]]:
    """Each class of the sources whose bases lead to one of the name ``root``, with its module."""
    defined = [
        (node.name, ".".join(path.relative_to(ROOT).with_suffix("").parts), {_last_name(base) for base in node.bases})
        for path in sorted((ROOT / "cc_tts").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    known = {root}
    while found := {name for name, _, bases in defined if bases & known} - known:
        known |= found
    return [(name, module) for name, module, _ in defined if name in known]


def _last_name(base: ast.expr) -> str:
    return ast.unparse(base).rpartition(".")[-1]


def error_classes() -> list[type[errors.CcTtsError]]:
    """The exception tree without its root, parents first; what lives beside torch is there if torch is installed."""
    modules = set(error_names().values())
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
    return [cls for cls in _below(errors.CcTtsError) if cls.__module__ in modules]


def _below(root: type[T]) -> Iterator[type[T]]:
    for child in root.__subclasses__():
        yield child
        yield from _below(child)


def problem_classes() -> list[type[errors.CcTtsError]]:
    """Those a client of the control API can meet, by status; a class without a code of its own is its parent to them."""
    abstract = {errors.ServerError, errors.ClientError}
    own = [cls for cls in error_classes() if "code" in vars(cls)]
    found = [cls for cls in own if cls not in abstract and not issubclass(cls, NOT_OVER_HTTP)]
    return sorted(found, key=lambda cls: (cls.http_status, cls.code))


def problems_table() -> str:
    """Every ``code`` of a problem document."""
    rows = [
        [str(cls.http_status), f"`{cls.code}`", cls.title, " ".join(inspect.getdoc(cls).split("\n\n")[0].split())]  # type: ignore[union-attr]
        for cls in problem_classes()
    ]
    rows.append(
        ["500", f"`{errors.CcTtsError.code}`", errors.CcTtsError.title, "Unexpected error; the log has the details."]
    )
    rows.sort(key=lambda row: row[0])
    return markdown(["status", "code", "title", "when"], [[row[0], row[1], row[2], _clean(row[3])] for row in rows])


def routes_table() -> str:
    """Every route of the control API."""
    rows = [[f"`{route.method} {route.path}`", route.scope or "–", route.summary] for route in ROUTES]
    return markdown(["route", "scope", "what"], rows)


def events_table() -> str:
    """Every event type, and what of its data not every event of its kind has."""
    rows = []
    for name, kind in EVENTS.items():
        shared = {*CallData.__struct_fields__, "client_state", "utterance_id"}
        fields = [_field(each) for each in msgspec.structs.fields(kind) if each.encode_name not in shared]
        rows.append([f"`{name}`", " ".join((inspect.getdoc(kind) or "").split()), ", ".join(fields) or "–"])
    return markdown(["event", "when", "data"], [[each[0], _clean(each[1]), _clean(each[2])] for each in rows])


def _field(field: msgspec.structs.FieldInfo) -> str:
    schema = msgspec.json.schema(field.type)
    what = str(schema.get("description", "")).removesuffix(".")
    if what[1:2].islower():
        what = what[:1].lower() + what[1:]
    return f"`{field.encode_name}`" + (f" ({what})" if what and what != "milliseconds" else "")


def layers_list() -> str:
    """The layers of the import contract, the highest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (each["layers"] for each in project["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    rows = [
        [str(number), ", ".join(f"`{name}`" for name in layer.split(" | "))] for number, layer in enumerate(layers, 1)
    ]
    return markdown(["layer", "packages and modules"], rows)


def messages_table() -> str:
    """Every message between two of our processes, with its fields."""
    rows = []
    for module, between in MESSAGE_MODULES.items():
        for name, kind in vars(importlib.import_module(module)).items():
            if isinstance(kind, type) and issubclass(kind, Message) and kind.__module__ == module and is_sent(kind):
                fields = ", ".join(f"`{each}`" for each in kind.__struct_fields__) or "–"
                rows.append([between, f"`{name}`", fields])
    return markdown(["between", "message", "fields"], rows)


def savings_table() -> str:
    """What each saving of the neural engine costs, by ``bench.engine.quality``; with trained weights, if there are."""
    small, trained = _savings("engine_savings"), _savings("engine_savings_trained")
    exact = {generation: cells["exactness"] for generation, cells in small.items()}
    spoken = [(generation, cells["spoken"]) for generation, cells in trained.items() if "spoken" in cells]
    head = ["saving", "log-probabilities, dB", "mel, dB"]
    head += [
        f"CosyVoice{number}: {what}" for number, _ in spoken for what in ("wrong words", "speaker", "first audio, ms")
    ]
    names = list(dict.fromkeys(name for cells in [*exact.values(), *(each for _, each in spoken)] for name in cells))
    rows = []
    for name in names:
        cells = [each.get(name, {}) for each in exact.values()]
        row = [name, *(" / ".join(str(cell.get(key, "–")) for cell in cells) for key in ("log_probs_db", "mel_db"))]
        for _, said in spoken:
            row += [
                str(said.get(name, {}).get(key, "–")) for key in ("wrong_words", "speaker_cosine", "first_audio_ms")
            ]
        rows.append(row)
    return markdown(head, rows)


def _savings(name: str) -> dict[str, Any]:
    path = ROOT / "bench" / "results" / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["savings"] if path.exists() else {}
    return found


def message_classes() -> list[type[Message]]:
    """Every message of the product that is sent or kept, wherever it is defined."""
    for module in {module for _, module in _descendants(Message.__name__)}:
        importlib.import_module(module)
    return [kind for kind in _below(Message) if kind.__module__.startswith("cc_tts.") and is_sent(kind)]


def is_sent(kind: type[Message]) -> bool:
    """Return whether it is a message and no base of messages."""
    return not kind.__subclasses__()


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "call": lambda: state_table(CALL_TABLE, CallState, CallEvent),
    "leg": lambda: state_table(LEG_TABLE, LegState, LegEvent),
    "utterance": lambda: state_table(UTTERANCE_TABLE, UtteranceState, UtteranceEvent),
    "synthesizer": lambda: state_table(SYNTH_TABLE, SynthState, SynthEvent),
    "process": lambda: state_table(PROCESS_TABLE, ProcessState, ProcessEvent),
    "metrics": metrics_table,
    "problems": problems_table,
    "routes": routes_table,
    "events": events_table,
    "layers": layers_list,
    "messages": messages_table,
    "voices": lambda: markdown(voices_table.HEAD, list(voices_table.rows())),
    "savings": savings_table,
}


def with_tables(text: str) -> str:
    """A document with its tables as the code has them now."""
    return _MARKERS.sub(lambda match: match[1] + TABLES[match[2]]() + match[3], text)


def documents() -> list[Path]:
    """Every Markdown file that is ours."""
    folders = ("docs", "dialplans", "sip", "bench")
    return sorted([*ROOT.glob("*.md"), *(path for folder in folders for path in (ROOT / folder).rglob("*.md"))])


def main() -> int:
    """Rewrite what is out of date; says which."""
    for path in documents():
        text = path.read_text(encoding="utf-8")
        if (renewed := with_tables(text)) != text:
            path.write_text(renewed, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)}: renewed\n")
    return 0


def _clean(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
