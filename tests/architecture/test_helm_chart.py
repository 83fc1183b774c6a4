"""The chart: rendered by Helm's own code and checked against the schemas of Kubernetes, without a cluster."""

import base64
import copy
import importlib
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cc_tts import __version__, cli
from cc_tts.config import load as configuration
from cc_tts.config.schema import ALL_SCOPES, Config
from cc_tts.metrics import Metrics
from tests.support.rendered_chart import (
    ALL_TOKENS,
    CHART,
    CONTROL,
    METRICS,
    RAY,
    REMOTE,
    TOKENS,
    Rendered,
    load_helm,
    mounts,
)

pytestmark = pytest.mark.architecture

yaml: Any = importlib.import_module("yaml")
jsonschema: Any = importlib.import_module("jsonschema")

ROOT = Path(__file__).resolve().parents[2]
EGRESS = {"enabled": True, "callsTo": ["203.0.113.0/24"], "extra": [{"ports": [{"port": 9060, "protocol": "UDP"}]}]}
EVERYTHING: dict[str, Any] = {
    **TOKENS,
    "image": {"digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "registry"}],
    "sip": {"publicAddress": "192.0.2.7", "trustedPeers": ["192.0.2.0/24", "198.51.100.7"]},
    "config": (
        '[tts]\nengine = "cosyvoice2"\n\n[tts.models.main]\nmodel_dir = "/models/m"\nfirst_hop_tokens = 15\n\n'
        '[routes.hello]\ngreeting = "{{ Hello }}."\n'
    ),
    "envFromSecrets": ["registration"],
    "resources": {"cpu": 8, "memory": "16Gi", "gpus": 1},
    "extraVolumes": [{"name": "models", "hostPath": {"path": "/models", "type": "Directory"}}],
    "extraVolumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
    "nodeSelector": {"cc-tts": "line"},
    "tolerations": [{"key": "cc-tts", "operator": "Exists", "effect": "NoSchedule"}],
    "priorityClassName": "telephony",
    "podAnnotations": {"example.com/team": "voice"},
    "networkPolicy": {"enabled": True, "sipFrom": ["192.0.2.0/24"], "httpFrom": ["198.51.100.0/24"], "egress": EGRESS},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-read-timeout": "7260"},
        "hosts": [{"host": "voice.example.com", "paths": [{"path": "/v1", "pathType": "Prefix"}]}],
        "tls": [{"secretName": "voice-api", "hosts": ["voice.example.com"]}],
    },
    "monitoring": {"serviceMonitor": True, "prometheusRule": True, "dashboard": True, "labels": {"release": "p"}},
}
DEPLOYMENT = {**TOKENS, "kind": "Deployment", "replicas": 3}
HPA = {**DEPLOYMENT, "autoscaling": {"method": "hpa"}}
KEDA = {**DEPLOYMENT, "autoscaling": {"method": "keda", "prometheusAddress": "http://prometheus:9090"}}
WORKERS = {**ALL_TOKENS, "workers": {"kind": "Deployment", "resources": {"gpus": 0}}}
GPU_WORKERS: dict[str, Any] = {
    **DEPLOYMENT,
    **ALL_TOKENS,
    "config": (
        '[tts]\nengine = "cosyvoice2"\nvoices_dir = "/voices"\nfirst_audio_target_ms = 200\n'
        'generations = {"b" = 0.05}\n\n[tts.models.main]\nmodel_dir = "/models/m"\n'
    ),
    "workers": {
        "kind": "Deployment",
        "image": {"digest": "sha256:" + "1" * 64},
        "generation": "b",
        "tlsSecret": "workers-tls",
        "extraVolumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}],
        "extraVolumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
        "nodeSelector": {"cc-tts": "worker"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "autoscaling": {"method": "keda"},
    },
    "autoscaling": {"method": "keda", "prometheusAddress": "http://prometheus:9090"},
    "networkPolicy": {"enabled": True, "linesFrom": ["192.0.2.0/24"], "egress": {"enabled": True}},
}
WORKERS_HPA = {**WORKERS, "workers": {"kind": "Deployment", "autoscaling": {"method": "hpa"}}}
POOL: dict[str, Any] = {**ALL_TOKENS, "pool": {"enabled": True, "rayAddress": "ray://ray.example.com:10001"}}
POOL_AND_WORKERS = {
    **WORKERS,
    "pool": POOL["pool"],
    "networkPolicy": {"enabled": True, "egress": {"enabled": True}},
}
RAY_CLUSTER: dict[str, Any] = {
    **ALL_TOKENS,
    "workers": {**GPU_WORKERS["workers"], "kind": "RayCluster", "tlsSecret": "", "autoscaling": {}},
    "pool": {
        "enabled": True,
        "image": {"digest": "sha256:" + "2" * 64},
        "extraVolumes": [{"name": "voices", "persistentVolumeClaim": {"claimName": "voices"}}],
        "extraVolumeMounts": [{"name": "voices", "mountPath": "/voices", "readOnly": True}],
    },
    "config": GPU_WORKERS["config"],
    "networkPolicy": {
        "enabled": True,
        "httpFrom": ["198.51.100.0/24"],
        "linesFrom": ["192.0.2.0/24"],
        "egress": {"enabled": True},
    },
    "monitoring": {"serviceMonitor": True},
}
RAY_WITHOUT_GPUS = {
    **ALL_TOKENS,
    "workers": {"kind": "RayCluster", "replicas": 3, "resources": {"gpus": 0}},
    "pool": {"enabled": True},
}
SIP_TLS: dict[str, Any] = {
    **TOKENS,
    "sip": {"transports": ["tcp", "tls"], "tlsSecret": "voice-sip"},
    "networkPolicy": {"enabled": True},
}
USER_AGENTS = {
    **TOKENS,
    "config": '[sip]\ntransports = ["udp"]\n[ua]\nprocesses = 3\nfirst_port = 5080\n',
    "networkPolicy": {"enabled": True},
}
VALUES: dict[str, dict[str, Any]] = {
    "tokens only": TOKENS,
    "a secret": {"secret": {"existing": "tokens-of-mine"}},
    "everything": EVERYTHING,
    "a deployment": DEPLOYMENT,
    "sip over tls": SIP_TLS,
    "user agents": USER_AGENTS,
    "hpa": HPA,
    "keda": KEDA,
    "workers": WORKERS,
    "workers with gpus": GPU_WORKERS,
    "workers and hpa": WORKERS_HPA,
    "workers, a secret": {"secret": {"existing": "tokens-of-mine"}, "workers": {"kind": "Deployment"}},
    "a pool": POOL,
    "a pool and workers": POOL_AND_WORKERS,
    "a ray cluster": RAY_CLUSTER,
    "a ray cluster without gpus": RAY_WITHOUT_GPUS,
}
EXAMPLES: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((CHART / "examples").iterdir())
}
HTTP_PORT = {"name": "http", "port": 8080, "targetPort": "http", "protocol": "TCP"}
KUBERNETES_VERSIONS = ("1.27", "1.37")
NAMED = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "minLength": 1}}}
START = {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}}
TEMPLATE = {"type": "object", "required": ["metadata", "spec"], "additionalProperties": {"type": "object"}}
CUSTOM: dict[str, dict[str, Any]] = {
    "ServiceMonitor": {
        "type": "object",
        "additionalProperties": False,
        "required": ["selector", "endpoints"],
        "properties": {
            "jobLabel": {"type": "string"},
            "selector": {"type": "object", "required": ["matchLabels"]},
            "endpoints": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["port", "path", "interval"],
                    "properties": {
                        "port": {"type": "string"},
                        "path": {"const": "/metrics"},
                        "interval": {"type": "string", "pattern": "^[0-9]+s$"},
                        "scrapeTimeout": {"type": "string", "pattern": "^[0-9]+s$"},
                        "authorization": {
                            "type": "object",
                            "required": ["type", "credentials"],
                            "properties": {
                                "type": {"const": "Bearer"},
                                "credentials": {**NAMED, "required": ["name", "key"]},
                            },
                        },
                        "relabelings": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "additionalProperties": False,
                                "required": ["targetLabel", "replacement"],
                                "properties": {"targetLabel": {"type": "string"}, "replacement": {"type": "string"}},
                            },
                        },
                    },
                },
            },
        },
    },
    "PrometheusRule": {
        "type": "object",
        "additionalProperties": False,
        "required": ["groups"],
        "properties": {"groups": {"type": "array", "minItems": 1, "items": {**NAMED, "required": ["name", "rules"]}}},
    },
    "RayCluster": {
        "type": "object",
        "additionalProperties": False,
        "required": ["rayVersion", "headGroupSpec", "workerGroupSpecs"],
        "properties": {
            "rayVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
            "headGroupSpec": {
                "type": "object",
                "additionalProperties": False,
                "required": ["rayStartParams", "template"],
                "properties": {"rayStartParams": START, "template": TEMPLATE},
            },
            "workerGroupSpecs": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"],
                    "properties": {
                        "groupName": {"type": "string", "minLength": 1},
                        "replicas": {"type": "integer", "minimum": 1},
                        "minReplicas": {"type": "integer", "minimum": 1},
                        "maxReplicas": {"type": "integer", "minimum": 1},
                        "rayStartParams": START,
                        "template": TEMPLATE,
                    },
                },
            },
        },
    },
    "ScaledObject": {
        "type": "object",
        "additionalProperties": False,
        "required": ["scaleTargetRef", "triggers"],
        "properties": {
            "scaleTargetRef": NAMED,
            "pollingInterval": {"type": "integer"},
            "minReplicaCount": {"type": "integer", "minimum": 1},
            "maxReplicaCount": {"type": "integer", "minimum": 1},
            "advanced": {"type": "object", "required": ["horizontalPodAutoscalerConfig"]},
            "triggers": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["type", "metadata"],
                    "properties": {
                        "type": {"const": "prometheus"},
                        "metadata": {
                            "required": ["serverAddress", "query", "threshold"],
                            "additionalProperties": {"type": "string", "minLength": 1},
                        },
                    },
                },
            },
        },
    },
}
"""Of what Kubernetes itself has no schema for: the fields of ``spec`` that the chart may use."""


@pytest.fixture(scope="module")
def helm() -> Any:
    """Helm's Go code."""
    return load_helm()


@pytest.fixture(params=VALUES)
def rendered(request: pytest.FixtureRequest, helm: Any) -> Rendered:
    return Rendered(helm, VALUES[request.param])


@pytest.fixture
def everything(helm: Any) -> Rendered:
    return Rendered(helm, EVERYTHING)


@pytest.fixture
def usual(helm: Any) -> Rendered:
    return Rendered(helm, TOKENS)


def sip_ports(config: Config) -> set[tuple[int, str]]:
    """Where a server with this configuration takes SIP."""
    sip, ua = config.sip, config.ua
    ports = {"udp": (sip.port, "UDP"), "tcp": (sip.port, "TCP"), "tls": (sip.tls_port, "TCP")}
    own = ua.own_ports if ua.processes > 1 else ()
    return {ports[each] for each in sip.transports} | {(port, "UDP") for port in own}


# --- what Helm and Kubernetes say ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALUES)
def test_helm_lints_it_strictly(name: str, helm: Any) -> None:
    found = helm.lint(str(CHART), copy.deepcopy(VALUES[name]), strict=True)
    assert found["errors"] == []
    assert found["messages"] == []


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubernetes_accepts_every_manifest(version: str, rendered: Rendered) -> None:
    check_manifests(rendered, version)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_accepted_by_helm_kubernetes_and_cc_tts(name: str, helm: Any, tmp_path: Path) -> None:
    found = helm.lint(str(CHART), copy.deepcopy(EXAMPLES[name]), strict=True)
    assert (found["errors"], found["messages"]) == ([], [])
    rendered = Rendered(helm, EXAMPLES[name])
    for version in KUBERNETES_VERSIONS:
        check_manifests(rendered, version)
    if "existingConfigMap" not in EXAMPLES[name]:
        assert rendered.configuration(tmp_path)


def check_manifests(rendered: Rendered, version: str) -> None:
    validate = importlib.import_module("kubernetes_validate")
    for document in rendered.documents:
        if document["kind"] in CUSTOM:
            jsonschema.validate(document["spec"], CUSTOM[document["kind"]])
        else:
            validate.validate(document, version, strict=True)
        if document["kind"] == "RayCluster":
            for name, template in rendered.templates():
                if name.startswith("ray-"):
                    validate.validate({"apiVersion": "v1", "kind": "Pod", **template}, version, strict=True)


def key_names(values: Mapping[str, Any]) -> set[str]:
    return set(values).union(*(key_names(each) for each in values.values() if isinstance(each, dict)))


def test_every_value_is_shown_in_an_example() -> None:
    shown = set().union(*map(key_names, EXAMPLES.values()))
    in_no_file_of_values = {"controlToken", "metricsToken", "remoteToken", "rayToken"}
    assert (
        key_names(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))) - shown == in_no_file_of_values
    )


def test_the_icon_is_that_beside_it() -> None:
    icon = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["icon"]
    kind, _, data = icon.partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == (CHART / "icon.svg").read_bytes()


def test_a_wrong_manifest_would_be_found(usual: Rendered) -> None:
    validate = importlib.import_module("kubernetes_validate")
    usual.pod()["hostNetwork"] = "yes"
    with pytest.raises(validate.ValidationError):
        validate.validate(usual.line, KUBERNETES_VERSIONS[-1], strict=True)


def test_no_manifest_is_made_twice_and_each_is_labelled(rendered: Rendered) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in rendered.documents]
    assert len(set(names)) == len(names)
    for each in rendered.documents:
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == "cc-tts"


def test_the_defaults_make_what_needs_no_operator(usual: Rendered) -> None:
    assert usual.kinds() == {"DaemonSet", "ConfigMap", "Secret", "Service", "Pod"}


# --- calls -----------------------------------------------------------------------------------------------------------


def test_sip_and_rtp_are_on_the_nodes_network_and_nothing_else_is(rendered: Rendered) -> None:
    on_the_nodes = {name for name, template in rendered.templates() if template["spec"].get("hostNetwork")}
    assert on_the_nodes == {"cc-tts"}
    assert rendered.pod()["hostNetwork"] is True
    assert rendered.pod()["dnsPolicy"] == "ClusterFirstWithHostNet"
    service = rendered.one("Service")["spec"]
    assert service["clusterIP"] == "None"
    assert service["ports"] == [HTTP_PORT]


def test_a_pod_drains_for_as_long_as_the_longest_call(rendered: Rendered, tmp_path: Path) -> None:
    calls = rendered.configuration(tmp_path).calls
    assert 0 < calls.max_duration_s <= calls.drain_timeout_s
    # beyond the drain: what `cc-tts drain` waits for the server to end
    assert rendered.pod()["terminationGracePeriodSeconds"] > calls.drain_timeout_s + 30
    command = rendered.container()["lifecycle"]["preStop"]["exec"]["command"]
    assert command == ["cc-tts", "drain", *rendered.container()["args"][1:]]


def test_one_node_is_upgraded_at_a_time(rendered: Rendered) -> None:
    spec = rendered.line["spec"]
    strategy = spec["updateStrategy"] if rendered.line["kind"] == "DaemonSet" else spec["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    if rendered.line["kind"] == "Deployment":
        assert spec["progressDeadlineSeconds"] > rendered.pod()["terminationGracePeriodSeconds"]


def test_budgets_of_line_nodes_are_for_what_kubernetes_can_count(rendered: Rendered) -> None:
    budgets = [each["spec"] for each in rendered.of("line") if each["kind"] == "PodDisruptionBudget"]
    if rendered.line["kind"] == "DaemonSet":  # without the subresource scale: no pod of it could be evicted
        assert budgets == []
        return
    (budget,) = budgets
    assert budget["maxUnavailable"] == 1
    labels = rendered.line["spec"]["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()


def test_nothing_restarts_a_server_that_is_full_or_drains(rendered: Rendered) -> None:
    container = rendered.container()
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


def test_cores_are_guaranteed(rendered: Rendered) -> None:
    resources = rendered.container()["resources"]
    assert resources["requests"] == resources["limits"]
    assert isinstance(resources["limits"]["cpu"], int)
    assert "initContainers" not in rendered.pod()


# --- configuration and secrets ---------------------------------------------------------------------------------------


def test_what_the_pod_reads_is_accepted(rendered: Rendered, tmp_path: Path) -> None:
    config = rendered.configuration(tmp_path)
    ports = {(each["containerPort"], each["protocol"]) for each in rendered.container()["ports"]}
    assert ports == {*sip_ports(config), (config.http.port, "TCP")}
    assert config.sip.public_address in ("192.0.2.1", "192.0.2.7")
    assert config.http.host == "192.0.2.1"  # of the node, and not every address that it has
    assert config.rtp.num_pairs >= config.sip.max_calls
    assert mounts(rendered.container())["cache"]["mountPath"] == config.cache.disk_dir
    assert any("admin" in token.scopes for token in config.http.tokens)  # which `cc-tts drain` needs


def test_sip_over_tls_has_the_certificate_of_its_secret(helm: Any, tmp_path: Path) -> None:
    rendered = Rendered(helm, SIP_TLS)
    config = rendered.configuration(tmp_path)
    (volume,) = (each for each in rendered.pod()["volumes"] if each["name"] == "sip-tls")
    folder = mounts(rendered.container())["sip-tls"]["mountPath"]
    assert volume["secret"]["secretName"] == "voice-sip"
    assert config.sip.transports == ("tcp", "tls")
    assert (config.tls.certificate_file, config.tls.private_key_file) == (f"{folder}/tls.crt", f"{folder}/tls.key")


def test_the_values_reach_the_configuration(everything: Rendered, tmp_path: Path) -> None:
    config = everything.configuration(tmp_path)
    assert config.sip.trusted_peers == ("192.0.2.0/24", "198.51.100.7")
    assert config.sip.public_address == "192.0.2.7"
    assert config.tts.models["main"].first_hop_tokens == 15
    assert config.routes["hello"].greeting == "{{ Hello }}."
    assert [(token.token, token.scopes) for token in config.http.tokens] == [
        (METRICS, ("read",)),
        (CONTROL, ALL_SCOPES),
    ]


def test_no_secret_is_outside_a_secret(rendered: Rendered) -> None:
    for document in rendered.documents:
        if document["kind"] != "Secret":
            for token in (CONTROL, METRICS, REMOTE, RAY):
                text = json.dumps(document)
                assert token not in text, document["kind"]
                assert base64.b64encode(token.encode()).decode() not in text, document["kind"]
    assert CONTROL not in rendered.notes


@pytest.mark.parametrize(
    "config",
    [
        '[http]\ntokens = ["a-token-in-a-map"]',
        '[http]\n  tokens=["a-token-in-a-map"]',
        '[http]\n"tokens" = ["a-token-in-a-map"]',
        'http = {tokens = ["a-token-in-a-map"]}',
        '[registration]\npassword = "a-word-in-a-map"',
        '[tls]\nprivate_key_password = "a-word-in-a-map"',
        '[auth]\nusers = [{username = "a", password = "a-word-in-a-map"}]',
        'http.tokens = ["a-token-in-a-map"]',
        '[remote]\ntoken = """\na-token-in-a-map"""',
        '[[tenants]]\n"password" = "a-word-where-none-belongs"',
    ],
)
def test_a_secret_in_the_configuration_is_refused(config: str, helm: Any) -> None:
    with pytest.raises(Exception, match="belong into a Secret"):
        Rendered(helm, {**TOKENS, "config": config})


@pytest.mark.parametrize(
    "config",
    [
        '[routes."*"]\ngreeting = "Your token = is ready"\n',
        '[routes."*"]\ngreeting = """\nSay this:\npassword = "x"\n"""\n',
        "[routes.users]\ngreeting = \"tokens = ['a']\"\n",
        '[tts]\nmax_streams = 15    # tokens = ["none"]\n',
    ],
)
def test_a_text_may_speak_of_a_token(config: str, helm: Any, tmp_path: Path) -> None:
    rendered = Rendered(helm, {**TOKENS, "config": config})
    assert rendered.one("ConfigMap")["data"]["cc_tts.toml"].strip() == config.strip()
    rendered.configuration(tmp_path)


def test_a_configuration_that_is_not_toml_is_refused_without_its_text(helm: Any) -> None:
    with pytest.raises(Exception, match="not valid TOML: line 2") as caught:
        Rendered(helm, {**TOKENS, "config": "[registration]\npassword = hunter-two\n"})
    assert "hunter" not in str(caught.value)


def test_a_change_of_the_configuration_replaces_the_pods(helm: Any) -> None:
    def stamps(values: Mapping[str, Any]) -> tuple[str, str | None]:
        found = Rendered(helm, values).line["spec"]["template"]["metadata"]["annotations"]
        return found["checksum/config"], found.get("checksum/secret")

    before = stamps(TOKENS)
    assert stamps(TOKENS) == before
    config = stamps({**TOKENS, "config": "[log]\njson = false\n"})
    assert (config[0] != before[0], config[1]) == (True, before[1])
    secret = stamps({"secret": {**TOKENS["secret"], "controlToken": "another-token-of-a-test"}})
    assert (secret[0], secret[1] != before[1]) == (before[0], True)
    assert stamps(VALUES["a secret"])[1] is None


def test_an_upgrade_of_the_chart_alone_replaces_no_pod(usual: Rendered) -> None:
    template = json.dumps(usual.line["spec"]["template"]["metadata"])
    assert "helm.sh/chart" not in template


# --- hardening -------------------------------------------------------------------------------------------------------


def test_nothing_is_privileged(rendered: Rendered) -> None:
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert user is not None
    for name, template in rendered.templates():
        pod = template["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": int(user[1]),
            "runAsGroup": int(user[2]),
            "fsGroup": int(user[2]),
            "seccompProfile": {"type": "RuntimeDefault"},
        }, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert pod["automountServiceAccountToken"] is False, name
        for key in ("hostPID", "hostIPC", "shareProcessNamespace"):
            assert key not in pod, name
        written = {volume for volume, mount in mounts(container).items() if not mount.get("readOnly")}
        assert written <= {"tmp", "cache", "compiled"}, name
        sizes = {each["name"]: each["emptyDir"]["sizeLimit"] for each in pod.get("volumes", []) if "emptyDir" in each}
        assert set(sizes) == written, name
        assert template["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false", name


def test_the_image_is_this_version_or_a_digest(usual: Rendered, everything: Rendered) -> None:
    assert usual.container()["image"] == f"cc-tts:{__version__}"
    assert everything.container()["image"] == "cc-tts@sha256:" + "0" * 64
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__


def test_the_network_policy_lets_in_from_whom_the_values_say(everything: Rendered) -> None:
    rtp, sip, http, test = everything.one("NetworkPolicy")["spec"]["ingress"]
    assert "from" not in rtp
    assert rtp["ports"] == [{"port": 16384, "endPort": 16983, "protocol": "UDP"}]
    assert sip["from"] == [{"ipBlock": {"cidr": "192.0.2.0/24"}}]
    assert http["from"] == [{"ipBlock": {"cidr": "198.51.100.0/24"}}]
    assert http["ports"] == test["ports"] == [{"port": 8080, "protocol": "TCP"}]
    labels = everything.one("Pod", name="voice-test")["metadata"]["labels"]
    assert test["from"][0]["podSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("values", [EVERYTHING, SIP_TLS, USER_AGENTS], ids=["usual", "tls", "user agents"])
def test_the_network_policy_lets_in_every_sip_port(values: dict[str, Any], helm: Any, tmp_path: Path) -> None:
    rendered = Rendered(helm, values)
    _, sip, *_ = rendered.one("NetworkPolicy")["spec"]["ingress"]
    assert {(each["port"], each["protocol"]) for each in sip["ports"]} == sip_ports(rendered.configuration(tmp_path))


# --- what users bring themselves ---------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [TOKENS, POOL_AND_WORKERS, RAY_CLUSTER], ids=["line", "workers", "ray"])
def test_a_config_map_of_the_user_is_that_of_every_pod(values: dict[str, Any], helm: Any) -> None:
    rendered = Rendered(helm, {**values, "config": 'password = "unread"', "existingConfigMap": "mine"})
    assert "ConfigMap" not in rendered.kinds()
    pods = [template for _, template in rendered.templates()]
    read = {each["configMap"]["name"] for pod in pods for each in pod["spec"].get("volumes", []) if "configMap" in each}
    assert read == {"mine"}
    assert not any("checksum/config" in pod["metadata"]["annotations"] for pod in pods)


def test_the_ingress_leads_to_the_control_api(everything: Rendered, usual: Rendered) -> None:
    ingress, service = everything.one("Ingress"), everything.one("Service")
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    backend = path["backend"]["service"]
    assert backend == {"name": service["metadata"]["name"], "port": {"name": service["spec"]["ports"][0]["name"]}}
    assert (rule["host"], path["path"], ingress["spec"]["ingressClassName"]) == ("voice.example.com", "/v1", "nginx")
    assert ingress["spec"]["tls"] == EVERYTHING["ingress"]["tls"]
    assert "https://voice.example.com/v1" in everything.notes
    assert "Ingress" not in usual.kinds()


def test_helm_test_asks_a_line_node_with_a_token(everything: Rendered, capsys: pytest.CaptureFixture[str]) -> None:
    assert everything.one("Pod", name="voice-test")["metadata"]["annotations"]["helm.sh/hook"] == "test"
    config = configuration.load(None, environ=everything.environment("test"))
    service = everything.one("Service")
    assert (config.http.host, config.http.port) == ("voice.telephony.svc", service["spec"]["ports"][0]["port"])
    assert any("read" in each.scopes for each in config.http.tokens)
    assert cli.main([*everything.container("test")["args"], "--set", "http.port=1"]) == 1
    assert "nothing answers at 127.0.0.1:1" in capsys.readouterr().err


# --- monitoring and scaling ------------------------------------------------------------------------------------------


def test_alerts_and_dashboard_are_those_of_configs(everything: Rendered) -> None:
    alerts = yaml.safe_load((ROOT / "configs/prometheus/alerts.yml").read_text(encoding="utf-8"))
    assert everything.one("PrometheusRule")["spec"] == alerts
    board = everything.one("ConfigMap", name="voice-dashboard")
    source = (ROOT / "configs/grafana/dashboards/cc_tts.json").read_text(encoding="utf-8")
    assert json.loads(board["data"]["cc_tts.json"]) == json.loads(source)
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_prometheus_scrapes_as_the_alerts_expect(everything: Rendered) -> None:
    monitor = everything.one("ServiceMonitor")
    service = everything.one("Service")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert monitor["metadata"]["labels"]["release"] == "p"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "cc-tts"  # up{job="cc-tts"}
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert int(endpoint["interval"].rstrip("s")) <= 30
    key = endpoint["authorization"]["credentials"]["key"]
    assert everything.one("Secret")["stringData"][key] == METRICS
    assert service["spec"]["publishNotReadyAddresses"] is True  # a server that drains is watched too


def test_selectors_select_the_pods(rendered: Rendered) -> None:
    labels = rendered.line["spec"]["template"]["metadata"]["labels"]
    assert rendered.line["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert rendered.one("Service")["spec"]["selector"].items() <= labels.items()


def test_autoscalers_count_calls_and_go_down_slowly(helm: Any) -> None:
    hpa = Rendered(helm, HPA)
    keda = Rendered(helm, KEDA)
    spec, scaled = hpa.one("HorizontalPodAutoscaler")["spec"], keda.one("ScaledObject")["spec"]
    assert spec["scaleTargetRef"]["name"] == scaled["scaleTargetRef"]["name"] == "voice"
    assert "replicas" not in hpa.line["spec"]
    assert Rendered(helm, DEPLOYMENT).line["spec"]["replicas"] == 3
    (metric,) = spec["metrics"]
    assert metric["pods"]["target"]["averageValue"] == "130"  # 65 % of 200 calls
    for behavior in (spec["behavior"], scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]):
        assert behavior["scaleDown"] == {
            "stabilizationWindowSeconds": 1800,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 600}],
        }
    calls, late = (trigger["metadata"] for trigger in scaled["triggers"])
    assert (calls["threshold"], late["threshold"]) == ("130", "1")
    known = Metrics().render().decode()
    asked = set(re.findall(r"cctts_\w+", " ".join((metric["pods"]["metric"]["name"], calls["query"], late["query"]))))
    assert asked == {"cctts_calls_active", "cctts_build_info", "cctts_ua_refusing_for_lateness"}
    for series in asked:
        assert series in known


def test_a_daemon_set_is_not_scaled(helm: Any) -> None:
    with pytest.raises(Exception, match="wants kind: Deployment"):
        Rendered(helm, {**TOKENS, "autoscaling": {"method": "hpa"}})


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"secret": {"controlToken": "short", "metricsToken": METRICS}},
        {**TOKENS, "replica": 2},
        {**TOKENS, "sip": {"port": 80}},
        {**TOKENS, "sip": {"prot": 5060}},
        {**TOKENS, "sip": {"publicAddress": "pbx.example.com"}},
        {**TOKENS, "sip": {"maxCalls": 301}},
        {**TOKENS, "sip": {"transports": ["sctp"]}},
        {**TOKENS, "sip": {"transports": ["tls"]}},
        {**TOKENS, "sip": {"tlsSecret": "voice-sip"}},
        {**TOKENS, "sip": {"tlsSecret": "voice-sip"}, "config": '[sip]\ntransports = ["tls"]'},
        {**TOKENS, "ingress": {"enabled": True, "hosts": []}},
        {**TOKENS, "networkPolicy": {"egress": {"callsTo": ["pbx.example.com"]}}},
        {**TOKENS, "calls": {"maxDurationSeconds": 0}},
        {**TOKENS, "resources": {"cpu": "500m"}},
        {**TOKENS, "image": {"tag": "latest"}},
        {**TOKENS, "image": {"digest": "sha256:abc"}},
        {**TOKENS, "kind": "StatefulSet"},
        {**TOKENS, "config": {"sip": {}}},
        {**KEDA, "autoscaling": {"method": "keda"}},
    ],
    ids=str,
)
def test_wrong_values_are_refused(values: dict[str, Any], helm: Any) -> None:
    with pytest.raises(Exception, match=r"cc-tts|values"):
        Rendered(helm, values)


def test_the_schema_has_every_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    assert set(schema["properties"]) - {"global"} == set(values)
    for name, section in values.items():
        described = schema["properties"][name]
        if "properties" in described:
            assert described["additionalProperties"] is False
            assert set(described["properties"]) == set(section), name


def test_what_comes_from_configs_is_a_link_and_no_copy() -> None:
    links = {path.name: path.readlink() for path in (CHART / "files").iterdir()}
    assert set(links) == {"alerts.yml", "cc_tts.json"}
    for name, target in links.items():
        assert (CHART / "files" / target).resolve().is_relative_to(ROOT / "configs"), name


def test_a_package_holds_what_the_links_lead_to(helm: Any, tmp_path: Path) -> None:
    helm.package(str(CHART), destination=str(tmp_path))
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        held = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        alerts = held["cc-tts/files/alerts.yml"]
        assert alerts is not None
        assert alerts.read() == (ROOT / "configs/prometheus/alerts.yml").read_bytes()
