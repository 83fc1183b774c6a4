"""The chart as Helm's own code renders it, and what a pod's command reads of it."""

import copy
import importlib
import importlib.util
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cc_tts.config import load as configuration
from cc_tts.config.schema import Config
from lab import needs

yaml: Any = importlib.import_module("yaml")

CHART = Path(__file__).resolve().parents[2] / "deploy/helm/cc-tts"
CONTROL, METRICS = "control-token-of-a-test", "metrics-token-of-a-test"
REMOTE, RAY = "remote-token-of-a-test", "ray-token-of-a-test"
TOKENS = {"secret": {"controlToken": CONTROL, "metricsToken": METRICS}}
ALL_TOKENS = {"secret": {**TOKENS["secret"], "remoteToken": REMOTE, "rayToken": RAY}}
NAMES = {"status.hostIP": "192.0.2.1", "status.podIP": "10.1.2.3", "spec.nodeName": "node-1"}
"""Of a pod: what the downward API says."""

Document = dict[str, Any]


def load_helm() -> Any:
    if importlib.util.find_spec("helm_python") is None or importlib.util.find_spec("kubernetes_validate") is None:
        needs.missing("charts", "what checks the chart is not installed: pip install -r requirements/charts.txt")
    return importlib.import_module("helm_python.chart")


class Rendered:
    def __init__(self, helm: Any, values: Mapping[str, Any], *, release: str = "voice") -> None:
        chart = helm.Chart.load(str(CHART))
        texts = chart.render(copy.deepcopy(dict(values)), name=release, namespace="telephony")
        self.notes = next(text for name, text in texts.items() if name.endswith("NOTES.txt"))
        self.documents: list[Document] = [
            document
            for name, text in texts.items()
            if name.endswith(".yaml")
            for document in yaml.safe_load_all(text)
            if document is not None
        ]

    def one(self, kind: str, *, name: str = "voice") -> Document:
        (found,) = (each for each in self.documents if each["kind"] == kind and each["metadata"]["name"] == name)
        return found

    def kinds(self) -> set[str]:
        return {each["kind"] for each in self.documents}

    def of(self, component: str) -> Iterator[Document]:
        for each in self.documents:
            if each["metadata"]["labels"]["app.kubernetes.io/component"] == component:
                yield each

    @property
    def line(self) -> Document:
        (found,) = (each for each in self.of("line") if each["kind"] in ("DaemonSet", "Deployment"))
        return found

    def templates(self) -> Iterator[tuple[str, Document]]:
        for each in self.documents:
            spec = each.get("spec", {})
            found = [spec["template"]] if "template" in spec else []
            if each["kind"] == "RayCluster":
                found = [group["template"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]
            if each["kind"] == "Pod":
                found = [each]
            for template in found:
                (container,) = template["spec"]["containers"]
                yield container["name"], template

    def pod(self, container: str = "cc-tts") -> Document:
        (found,) = (template["spec"] for name, template in self.templates() if name == container)
        assert isinstance(found, dict)
        return found

    def container(self, name: str = "cc-tts") -> Document:
        (found,) = self.pod(name)["containers"]
        assert isinstance(found, dict)
        return found

    def environment(self, container: str = "cc-tts") -> dict[str, str]:
        own = self.one("Secret")["stringData"] if "Secret" in self.kinds() else {}
        secrets = {"http-tokens": f'[{{token = "{CONTROL}"}}]', "remote-token": REMOTE, "ray-auth-token": RAY, **own}
        environ: dict[str, str] = {}
        for each in self.container(container)["env"]:
            match each:
                case {"name": name, "value": value}:
                    environ[name] = expanded(value, environ)
                case {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}:
                    environ[name] = NAMES[path]
                case {"name": name, "valueFrom": {"secretKeyRef": {"key": key}}}:
                    environ[name] = secrets[key]
        return environ

    def arguments(self, container: str = "cc-tts") -> list[str]:
        return [expanded(each, self.environment(container)) for each in self.container(container)["args"]]

    def configuration(self, folder: Path, container: str = "cc-tts") -> Config:
        """What the command of a container reads, on a node with the address 192.0.2.1 in a pod with 10.1.2.3."""
        _, option, path = self.arguments(container)[:3]
        assert (option, path) == ("--config", "/etc/cc-tts/cc_tts.toml")
        assert mounts(self.container(container))["config"]["mountPath"] == "/etc/cc-tts"
        file = folder / "cc_tts.toml"
        file.write_text(self.one("ConfigMap")["data"]["cc_tts.toml"], encoding="utf-8")
        return configuration.load(file, environ=self.environment(container))


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """``$(NAME)`` is a variable that comes before; one that does not stays as it is."""
    return re.sub(r"\$\((\w+)\)", lambda match: environ.get(match[1], match[0]), text)


def mounts(container: Document) -> dict[str, Document]:
    return {each["name"]: each for each in container.get("volumeMounts", [])}
