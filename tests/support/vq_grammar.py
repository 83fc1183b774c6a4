"""Reads the report of a call as the grammar of RFC 6035 §4.6 has it. It shares nothing with the writer."""

import re
from dataclasses import dataclass, field
from typing import Final

_NUMBERS: Final = {
    "SessionDesc": {"PT": r"\d{1,3}", "PD": r"[\w.-]+", "SR": r"\d{1,6}", "FD": r"\d{1,4}", "FO": r"\d{1,5}"}
    | {"FPP": r"\d{1,2}", "PPS": r"\d{1,5}", "FMTP": r'"[^"]+"', "PLC": "[0-3]", "SSUP": "on|off"},
    "JitterBuffer": {"JBA": "[0-3]", "JBR": r"\d{1,2}", "JBN": r"\d{1,5}", "JBM": r"\d{1,5}", "JBX": r"\d{1,5}"},
    "PacketLoss": {"NLR": r"\d{1,3}(\.\d{1,2})?", "JDR": r"\d{1,3}(\.\d{1,2})?"},
    "BurstGapLoss": {"BLD": r"\d{1,3}(\.\d{1,2})?", "BD": r"\d{1,7}", "GLD": r"\d{1,3}(\.\d{1,2})?", "GD": r"\d{1,7}"}
    | {"GMIN": r"\d{1,3}"},
    "Delay": {"RTD": r"\d{1,5}", "ESD": r"\d{1,5}", "SOWD": r"\d{1,5}", "IAJ": r"\d{1,5}", "MAJ": r"\d{1,5}"},
    "Signal": {"SL": r"-?\d{1,2}", "NL": r"-?\d{1,2}", "RERL": r"\d{1,3}"},
    "QualityEst": {"RLQ": r"\d{1,3}", "RCQ": r"\d{1,3}", "EXTRI": r"\d{1,3}", "EXTRO": r"\d{1,3}"}
    | {"MOSLQ": r"\d(\.\d{1,3})?", "MOSCQ": r"\d(\.\d{1,3})?", "QoEEstAlg": r"[\w.-]+"},
}
"""The lines of metrics, in their order, and the values of each, in theirs."""
_DATE: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
_ADDRESS: Final = r"IP=(?P<ip>[\d.]+|\[?[0-9A-Fa-f:]+\]?) PORT=(?P<port>\d+) SSRC=0x(?P<ssrc>[0-9A-Fa-f]{1,8})"
_PARTY: Final = r"(?:\"[^\"]*\" ?)?<sips?:[^<>\s]+>"
_SESSION: Final = {
    "CallID": r"[^\s]+",
    "LocalID": _PARTY,
    "RemoteID": _PARTY,
    "OrigID": _PARTY,
    "LocalAddr": _ADDRESS,
    "RemoteAddr": _ADDRESS,
    "LocalGroup": r"\S[ -~]*",
    "RemoteGroup": r"\S[ -~]*",
}
_DIALOG: Final = re.compile(r"DialogID ?: ?([^;\s]+)((?:;(?:to-tag|from-tag)=[\w.!%*+`'~-]+)+)")


@dataclass
class Report:
    """What a report says: the lines of the session, and the values of each side's metrics by their lines."""

    is_interval: bool = False
    session: dict[str, str] = field(default_factory=dict)
    local: dict[str, dict[str, str]] = field(default_factory=dict)
    remote: dict[str, dict[str, str]] | None = None
    dialog: tuple[str, dict[str, str]] | None = None


def parsed(body: str) -> Report:
    """Read a report of a session or of an interval. Whatever the grammar does not have raises ``AssertionError``."""
    assert body.endswith("\r\n")
    lines = re.sub(r"\r\n[ \t]+", " ", body).split("\r\n")[:-1]
    assert not any("\n" in line or "\r" in line for line in lines)
    report = Report()
    first = re.fullmatch(r"VQSessionReport(?: ?: ?CallTerm)?|(VQIntervalReport)", lines.pop(0))
    assert first is not None
    report.is_interval = first[1] is not None
    while lines and lines[0].partition(":")[0].strip() in _SESSION:
        name, _, value = lines.pop(0).partition(":")
        assert name not in report.session, f"{name} comes twice"
        assert re.fullmatch(_SESSION[name], value.strip()), f"{name}: {value}"
        report.session[name] = value.strip()
    assert not _SESSION.keys() - report.session.keys()
    assert lines.pop(0) == "LocalMetrics:"
    report.local = _metrics(lines)
    if lines and lines[0] == "RemoteMetrics:":
        lines.pop(0)
        report.remote = _metrics(lines)
    if lines:
        dialog = _DIALOG.fullmatch(lines.pop(0))
        assert dialog is not None
        pairs = (each.partition("=")[::2] for each in dialog[2].split(";")[1:])
        report.dialog = dialog[1], dict(pairs)
    assert lines == []
    return report


def _metrics(lines: list[str]) -> dict[str, dict[str, str]]:
    times = re.fullmatch(rf"Timestamps ?: ?START=({_DATE}) STOP=({_DATE})", lines.pop(0))
    assert times is not None
    assert times[1] <= times[2]
    found = {"Timestamps": {"START": times[1], "STOP": times[2]}}
    for name, known in _NUMBERS.items():
        if not lines or lines[0].partition(":")[0] != name:
            continue
        values = dict(each.split("=", 1) for each in lines.pop(0).partition(":")[2].strip().split(" "))
        assert [each for each in known if each in values] == list(values), f"the order of {name}, or an unknown value"
        for key, value in values.items():
            assert re.fullmatch(known[key], value), f"{name}: {key}={value}"
        found[name] = values
    return found
