"""What operators are given agrees with the code: alerts, dashboard, images, services."""

import importlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from cc_tts import __version__
from cc_tts.clock import MonotonicClock
from cc_tts.config import load as configuration
from cc_tts.config import schema
from cc_tts.engines.factory import COSYVOICE2
from cc_tts.metrics import Metrics
from cc_tts.pool.state import PoolState

pytestmark = pytest.mark.architecture

yaml: Any = importlib.import_module("yaml")
jsonschema: Any = importlib.import_module("jsonschema")

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "configs/prometheus"
DASHBOARDS = sorted((ROOT / "configs/grafana/dashboards").glob("*.json"))
PROMTOOL_TIMEOUT_S = 60
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",), "gauge": ("",)}
SCRAPED = {"job", "instance"}
"""Labels that Prometheus adds to every series."""
NOT_OURS = {"up", "ALERTS"}


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def file_of(name: str, item: dict[str, Any], **more: Any) -> dict[str, Any]:
    return fields("apiVersion", name, apiVersion={"const": 1}, **{name: {"type": "array", "items": item}}, **more)


TEXT = {"type": "string", "minLength": 1}
FLAG = {"type": "boolean"}
NUMBER = {"type": "integer", "minimum": 0}
PROVISIONING = {
    "datasources": file_of(
        "datasources",
        fields(
            *("name", "type", "access"),
            **dict.fromkeys(("name", "type", "uid", "url", "user", "database", "basicAuthUser"), TEXT),
            **dict.fromkeys(("basicAuth", "withCredentials", "isDefault", "editable"), FLAG),
            **dict.fromkeys(("orgId", "version"), NUMBER),
            access={"enum": ["proxy", "direct"]},
            jsonData={"type": "object"},
            secureJsonData={"type": "object", "additionalProperties": TEXT},
        ),
        deleteDatasources={"type": "array"},
        prune=FLAG,
    ),
    "dashboards": file_of(
        "providers",
        fields(
            *("name", "options"),
            **dict.fromkeys(("name", "folder", "folderUid"), TEXT),
            **dict.fromkeys(("disableDeletion", "allowUiUpdates"), FLAG),
            **dict.fromkeys(("orgId", "updateIntervalSeconds"), NUMBER),
            type={"const": "file"},
            options=fields("path", path=TEXT, foldersFromFilesStructure=FLAG),
        ),
    ),
}
"""Schemas of the files that provision Grafana, with the fields of its documentation ("Provision Grafana")."""
PLACE = fields("x", "y", "w", "h", **dict.fromkeys("xywh", NUMBER))
DASHBOARD = {
    "type": "object",
    "required": ["uid", "title", "schemaVersion", "panels", "templating", "time"],
    "properties": {
        "uid": {"type": "string", "pattern": r"^[A-Za-z0-9_-]{1,40}$"},
        "id": {"type": "null"},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "time": fields("from", "to", **{"from": TEXT, "to": TEXT}),
        "panels": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "type", "title", "gridPos"],
                "properties": {
                    "type": {
                        "enum": [
                            *("row", "text", "stat", "timeseries", "gauge", "bargauge", "table"),
                            *("heatmap", "histogram", "state-timeline", "piechart", "barchart", "alertlist", "logs"),
                        ]
                    },
                    "gridPos": PLACE,
                    "datasource": fields("type", "uid", type=TEXT, uid=TEXT),
                    "targets": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "required": ["expr", "refId"],
                            "properties": {"expr": TEXT, "refId": {"type": "string", "pattern": "^[A-Z]$"}},
                        },
                    },
                },
            },
        },
    },
}
"""Of a dashboard's JSON model: the fields without which Grafana does not show it as it is meant. A file has no ``id``."""


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def series() -> Mapping[str, frozenset[str]]:
    """Every series of the server and of the pool, and their labels."""
    found: dict[str, frozenset[str]] = {}
    metrics = Metrics()
    for value in families():
        (family,) = value.describe()
        for suffix in SUFFIXES[family.type]:
            more = {"le"} if suffix == "_bucket" else set()
            found[family.name + suffix] = frozenset({*value._labelnames, *more})
    for family in metrics.registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, frozenset(sample.labels))
    return found


def families() -> list[Any]:
    """Whatever is counted by server and pool."""
    pool = PoolState(cast("Any", None), clock=MonotonicClock(), first_audio_target_ms=300.0)
    return [value for each in (Metrics(), pool) for value in vars(each).values() if hasattr(value, "describe")]


def rules() -> list[dict[str, Any]]:
    return [rule for group in read(PROMETHEUS / "alerts.yml")["groups"] for rule in group["rules"]]


def panels() -> Iterator[dict[str, Any]]:
    for path in DASHBOARDS:
        yield from json.loads(path.read_text(encoding="utf-8"))["panels"]


def expressions() -> list[str]:
    found = [rule["expr"] for rule in rules()]
    found += [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    for path in DASHBOARDS:
        board = json.loads(path.read_text(encoding="utf-8"))
        found += [variable["query"]["query"] for variable in board["templating"]["list"]]
        found += [annotation["expr"] for annotation in board["annotations"]["list"]]
    return found


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = read(ROOT / "docker-compose.yml")["services"][name]
    return found


@pytest.mark.parametrize("expression", expressions())
def test_every_series_that_is_asked_for_exists(expression: str) -> None:
    known = series()
    asked = re.findall(r"\b((?:cctts|process)_\w+|up|ALERTS)\b(?:\{([^}]*)\})?", expression)
    names = [name for name, _ in asked if name != "process_" and not re.search(rf"by \([^)]*\b{name}\b", expression)]
    assert names
    for name, matchers in asked:
        if name in NOT_OURS:
            continue
        assert name in known, name
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert labels <= known[name] | SCRAPED, name


def test_labels_that_results_are_grouped_by_exist() -> None:
    everything = set().union(*series().values()) | SCRAPED
    for expression in expressions():
        for labels in re.findall(r"\b(?:by|on|without)\s*\(([^)]*)\)", expression):
            assert {label.strip() for label in labels.split(",")} <= everything, expression


def test_every_series_of_server_and_pool_is_on_the_dashboard() -> None:
    shown = " ".join(target["expr"] for panel in panels() for target in panel.get("targets", ()))
    for family in (value.describe()[0] for value in families()):
        assert family.name in shown, family.name


def test_the_operators_table_has_every_alert_with_its_severity() -> None:
    text = (ROOT / "docs/operators/observe.md").read_text(encoding="utf-8")
    table = text.split("| alert | when | severity | first |\n| --- | --- | --- | --- |\n", 1)[1].split("\n\n", 1)[0]
    listed: dict[str, str] = {}
    for row in table.splitlines():
        names, _, severities, first = (cell.strip() for cell in row.strip("|").split("|"))
        assert first, names
        listed |= dict(zip(names.split(", "), severities.split(", "), strict=True))
    assert listed == {rule["alert"]: rule["labels"]["severity"] for rule in rules()}


def test_log_lines_that_operators_are_told_about_exist() -> None:
    text = (ROOT / "docs/operators/observe.md").read_text(encoding="utf-8")
    table = text.split("| event | meaning |\n| --- | --- |\n", 1)[1].split("\n\n", 1)[0]
    named = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines()))
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "cc_tts").rglob("*.py"))
    assert named
    assert not [name for name in named if f'"{name}"' not in sources]


def test_every_alert_says_what_to_do_and_is_tested() -> None:
    tested = {
        case["alertname"] for test in read(PROMETHEUS / "alerts_test.yml")["tests"] for case in test["alert_rule_test"]
    }
    fired = {
        case["alertname"]
        for test in read(PROMETHEUS / "alerts_test.yml")["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    names = [rule["alert"] for rule in rules()]
    assert sorted(set(names)) == sorted(names)
    assert set(names) == fired == tested
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]


def test_configuration_keys_that_alerts_name_exist() -> None:
    text = (PROMETHEUS / "alerts.yml").read_text(encoding="utf-8")
    defaults = schema.Config()
    keys = re.findall(r"\b(sip|rtp|http|tts|calls|cache)\.([a-z_]+)", text)
    assert keys
    for section, key in keys:
        assert hasattr(getattr(defaults, section), key), f"{section}.{key}"


def test_the_targets_of_the_alerts_are_the_defaults() -> None:
    (late,) = (rule["expr"] for rule in rules() if rule["alert"] == "FirstAudioLate")
    assert f"> {schema.Config().tts.first_audio_target_ms / 1000:g}" in late
    (busy,) = (rule["expr"] for rule in rules() if rule["alert"] == "EngineBusy")
    assert float(busy.rpartition(">")[2]) < schema.Config().tts.max_utilisation


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed: apt-get install --no-install-recommends prometheus",
)
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
        ("check", "config", "--syntax-only", "prometheus.yml"),
    ],
    ids=" ".join,
)
def test_promtool_agrees(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["promtool", *arguments],
        cwd=PROMETHEUS,
        check=False,
        capture_output=True,
        text=True,
        timeout=PROMTOOL_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_do_not_overlap_and_have_their_own_numbers() -> None:
    found = list(panels())
    assert len({panel["id"] for panel in found}) == len(found)
    places: set[tuple[int, int]] = set()
    for panel in found:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {(place["x"] + column, place["y"] + row) for column in range(place["w"]) for row in range(place["h"])}
        assert not places & cells, panel["title"]
        places |= cells


def test_the_dashboard_finds_its_data() -> None:
    (source,) = read(ROOT / "configs/grafana/provisioning/datasources/prometheus.yml")["datasources"]
    text = "".join(path.read_text(encoding="utf-8") for path in DASHBOARDS)
    assert set(re.findall(r'"type": "prometheus",\s+"uid": "([^"]+)"', text)) == {source["uid"]}
    (provider,) = read(ROOT / "configs/grafana/provisioning/dashboards/cc_tts.yml")["providers"]
    mounts = dict(volume.split(":")[:2] for volume in service("grafana")["volumes"])
    assert mounts["./configs/grafana/dashboards"] == provider["options"]["path"]


@pytest.mark.parametrize("kind", PROVISIONING)
def test_what_provisions_grafana_has_only_fields_that_grafana_documents(kind: str) -> None:
    for path in (ROOT / "configs/grafana/provisioning" / kind).iterdir():
        jsonschema.validate(read(path), PROVISIONING[kind])


def test_the_dashboard_has_what_grafana_needs_of_one() -> None:
    for path in DASHBOARDS:
        jsonschema.validate(json.loads(path.read_text(encoding="utf-8")), DASHBOARD)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"title": "cc-tts", "panels": [{"type": "graph"}]}, DASHBOARD)


def test_prometheus_scrapes_the_server() -> None:
    job, pool = read(PROMETHEUS / "prometheus.yml")["scrape_configs"]
    assert (job["job_name"], pool["job_name"]) == ("cc-tts", "cc-tts-pool")
    (target,) = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert int(port) == schema.HttpConfig().port
    for name in ("cc-tts", "cc-tts-gpu"):
        assert host in service(name)["networks"]["telephony"]["aliases"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{service('prometheus')['secrets'][0]}"


def test_the_configuration_for_a_gpu_is_accepted() -> None:
    loaded = configuration.load(ROOT / "configs/cc_tts.gpu.toml")
    assert loaded.tts.engine == COSYVOICE2
    assert loaded.tts.models["main"].model_dir.startswith("/models/")
    mounts = {volume.split(":")[1] for volume in service("cc-tts-gpu")["volumes"]}
    assert mounts == {"/models", loaded.tts.voices_dir, "/cache"}


@pytest.mark.parametrize("name", ["cc-tts", "cc-tts-gpu"])
def test_the_settings_of_the_services_are_accepted(name: str) -> None:
    environment = {
        key: re.sub(r"\$\{(\w+):\?[^}]*\}", r"the-\1", re.sub(r"\$\{\w+:-\}", "", value))
        for key, value in service(name)["environment"].items()
    }
    loaded = configuration.load(environ=environment)
    assert [token.scopes for token in loaded.http.tokens] == [("read",), ("read", "call", "listen", "talk", "admin")]
    assert f"{loaded.rtp.port_min}-{loaded.rtp.port_max}:" in " ".join(service(name)["ports"])
    assert loaded.sip.max_calls * 2 <= loaded.rtp.port_max - loaded.rtp.port_min + 1
    assert f"ipv4_address: {loaded.sip.trusted_peers[0]}" in (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    grace_s = int(service(name)["stop_grace_period"].removesuffix("s"))
    assert grace_s >= loaded.calls.drain_timeout_s + 10


def test_services_are_hardened() -> None:
    for name, found in read(ROOT / "docker-compose.yml")["services"].items():
        assert found["cap_drop"] == ["ALL"], name
        assert found["security_opt"] == ["no-new-privileges:true"], name
        assert found["read_only"] is (name != "prometheus"), name
        assert "latest" not in found["image"], name
        assert ":" in found["image"], name


def test_the_images_carry_this_version_and_are_built_as_said() -> None:
    assert service("cc-tts")["image"] == f"cc-tts:{__version__}"
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", dockerfile, re.MULTILINE)
    names = [name for _, name in stages]
    assert names[-1] == "runtime"
    for found in read(ROOT / "docker-compose.yml")["services"].values():
        if "build" in found:
            assert found["build"]["target"] in names
    tags = dict(re.findall(r"^ARG (\w+)=(\S+)$", dockerfile, re.MULTILINE))
    assert all(origin in names or re.search(r":.*\d{8}", tags[origin.strip("${}")]) for origin, _ in stages)
    for copied in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE):
        for name in copied.split():
            assert (ROOT / name).exists(), name
    assert "--require-hashes" in dockerfile
    assert re.search(r"^USER \d+:\d+$", dockerfile, re.MULTILINE)


def test_the_command_of_the_image_greets_callers() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    command, option, path = json.loads(dockerfile.rsplit("\nCMD ", 1)[1])
    assert (command, option) == ("serve", "--config")
    name = Path(path).name
    assert f"configs/{name}" in dockerfile
    assert configuration.load(ROOT / "configs" / name).routes["*"].greeting


def test_the_images_say_what_they_are_and_how_they_are() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]+)"', dockerfile))
    assert labels.keys() >= {"title", "version", "revision", "licenses"}
    assert labels["version"] == __version__
    assert labels["licenses"] in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    checks = re.findall(r"HEALTHCHECK .*\\\n +CMD (.*)", dockerfile)
    assert [json.loads(check) for check in checks] == [["cc-tts", "health"]] * 2
    assert "--format docker" in (ROOT / "deploy/images/build.sh").read_text(encoding="utf-8")


def test_what_is_installed_is_pinned_with_hashes() -> None:
    """But for PyTorch, of which each machine gets the build that fits, see requirements/neural.txt."""
    files = {path.name: path for path in (ROOT / "requirements").iterdir() if path.suffix in (".txt", ".lock")}
    for name in files.keys() - {"neural.txt", "gpu.txt"}:
        pins = re.split(r"\n(?=\S)", re.sub(r"(?m)^#.*\n", "", files[name].read_text(encoding="utf-8")).strip())
        for pin in pins:
            assert re.match(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==\S+[^\n]*\\\n +--hash=sha256:[0-9a-f]{64}", pin), (
                name,
                pin[:80],
            )
    assert "-r neural.txt" in files["gpu.txt"].read_text(encoding="utf-8"), "gpu.lock has the hashes of both"


def test_the_lock_for_older_drivers_differs_from_that_of_the_image_in_pytorch_alone() -> None:
    def pins(name: str) -> dict[str, str]:
        text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
        return dict(re.findall(r"(?m)^([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?==(\S+)", text))

    newer, older = pins("gpu.lock"), pins("gpu-cuda12.lock")
    differing = {name for name in newer.keys() | older.keys() if newer.get(name) != older.get(name)}
    assert {"torch", "triton"} <= differing
    others = {name for name in differing - {"torch", "triton"} if not re.match(r"nvidia-|cuda-", name)}
    assert not others
    assert any(name.endswith("-cu12") for name in older)
