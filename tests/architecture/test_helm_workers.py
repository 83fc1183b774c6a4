"""The chart's speech workers, pool and Ray cluster: what they read agrees with what line nodes read, and with the code."""

import importlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from cc_tts import __version__
from cc_tts.clock import MonotonicClock
from cc_tts.cluster.nodes import LineNodes
from cc_tts.config import remote
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.factory import COSYVOICE2
from cc_tts.engines.remote.host import DRAIN_TIMEOUT_S
from cc_tts.metrics import Metrics
from cc_tts.pool import hints
from cc_tts.pool.ray_hosts import CPU_RESOURCE
from cc_tts.pool.state import PoolState
from cc_tts.pool.worker_host import NUM_PORTS
from tests.architecture.test_helm_chart import (
    EVERYTHING,
    GPU_WORKERS,
    HPA,
    POOL,
    POOL_AND_WORKERS,
    RAY_CLUSTER,
    RAY_WITHOUT_GPUS,
    VALUES,
    WORKERS,
    WORKERS_HPA,
)
from tests.support.rendered_chart import ALL_TOKENS, RAY, REMOTE, TOKENS, Document, Rendered, load_helm, mounts

pytestmark = pytest.mark.architecture

yaml: Any = importlib.import_module("yaml")

ROOT = Path(__file__).resolve().parents[2]
MAX_SERVICE_CHARS_OF_KUBERAY = 50


@pytest.fixture(scope="module")
def helm() -> Any:
    return load_helm()


def pool_registry() -> CollectorRegistry:
    hosts: Any = None
    return PoolState(hosts, clock=MonotonicClock(), first_audio_target_ms=300.0).registry


def gpus(container: Document) -> int:
    return int(container["resources"]["limits"].get("nvidia.com/gpu", 0))


# --- what the pods of a cluster need besides -----------------------------------------------------------------------

PLACEMENT: dict[str, Any] = {
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname"}],
    "runtimeClassName": "nvidia",
    "priorityClassName": "calls",
    "initContainers": [{"name": "fetch", "image": "fetch", "securityContext": {"runAsUser": 1000680000}}],
    "tolerations": [{"operator": "Exists"}],
}


@pytest.mark.parametrize(
    ("container", "values"),
    [
        ("cc-tts", PLACEMENT),
        ("worker", {"workers": {"kind": "Deployment", **PLACEMENT}}),
        ("pool", {"pool": {"enabled": True, "rayAddress": "ray://head:10001", **PLACEMENT}}),
        ("ray-head", {"workers": {"kind": "RayCluster"}, "pool": {"enabled": True, **PLACEMENT}}),
        ("ray-worker", {"workers": {"kind": "RayCluster", **PLACEMENT}, "pool": {"enabled": True}}),
    ],
)
def test_each_kind_of_pod_is_placed_as_its_values_say(container: str, values: dict[str, Any], helm: Any) -> None:
    pod = Rendered(helm, {**ALL_TOKENS, **values}).pod(container)
    assert {name: pod.get(name) for name in PLACEMENT} == PLACEMENT


@pytest.mark.parametrize(
    ("container", "section"), [("cc-tts", None), ("worker", "workers"), ("pool", "pool"), ("ray-worker", "workers")]
)
def test_each_kind_of_pod_takes_variables_and_labels(container: str, section: str | None, helm: Any) -> None:
    more = {"extraEnv": [{"name": "CC_TTS_LOG__LEVEL", "value": "debug"}], "podLabels": {"team": "voice"}}
    kind = "RayCluster" if container == "ray-worker" else "Deployment"
    address = "" if kind == "RayCluster" else "ray://head:10001"
    values: dict[str, Any] = {"workers": {"kind": kind}, "pool": {"enabled": True, "rayAddress": address}}
    (values if section is None else values[section]).update(more)
    rendered = Rendered(helm, {**ALL_TOKENS, **values})
    assert rendered.environment(container)["CC_TTS_LOG__LEVEL"] == "debug"
    (labels,) = (template["metadata"]["labels"] for name, template in rendered.templates() if name == container)
    assert labels["team"] == "voice"


@pytest.mark.parametrize(
    ("container", "section", "name"),
    [("cc-tts", None, "voice"), ("worker", "workers", "voice-worker"), ("pool", "pool", "voice-pool")],
)
def test_each_kind_of_pod_may_have_a_service_account(container: str, section: str | None, name: str, helm: Any) -> None:
    def made(**account: Any) -> tuple[str | None, list[Document]]:
        values: dict[str, Any] = {"workers": {"kind": "Deployment"}, "pool": POOL["pool"].copy()}
        (values if section is None else values[section])["serviceAccount"] = account
        rendered = Rendered(helm, {**ALL_TOKENS, **values})
        accounts = [each for each in rendered.documents if each["kind"] == "ServiceAccount"]
        return rendered.pod(container).get("serviceAccountName"), accounts

    granted = {"eks.amazonaws.com/role-arn": "a-role"}
    used, (account,) = made(create=True, annotations=granted)
    assert used == account["metadata"]["name"] == name
    assert account["metadata"]["annotations"] == granted
    assert account["automountServiceAccountToken"] is False
    assert made(name="speech") == ("speech", [])
    assert made() == (None, [])


def test_a_gpu_may_have_another_name(helm: Any) -> None:
    workers = {"kind": "Deployment", "resources": {"gpus": 1, "gpuResource": "nvidia.com/mig-1g.10gb"}}
    limits = Rendered(helm, {**ALL_TOKENS, "workers": workers}).container("worker")["resources"]["limits"]
    assert limits["nvidia.com/mig-1g.10gb"] == 1
    assert "nvidia.com/gpu" not in limits


# --- line nodes and workers find each other --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["workers", "workers with gpus"])
def test_line_nodes_dial_the_service_of_the_workers(name: str, helm: Any, tmp_path: Path) -> None:
    rendered = Rendered(helm, VALUES[name])
    line = rendered.configuration(tmp_path)
    (address,) = map(remote.parse, line.tts.workers)
    service = rendered.one("Service", name="voice-workers")
    assert (address.scheme, address.host) == ("dns", "voice-workers.telephony.svc")
    assert service["spec"]["clusterIP"] == "None"  # an address of each pod
    (port,) = service["spec"]["ports"]
    (own,) = rendered.container("worker")["ports"]
    assert (port["targetPort"], port["port"], own["containerPort"]) == (own["name"], address.port, address.port)
    assert line.tts.devices == ()


@pytest.mark.parametrize("name", ["workers", "workers with gpus"])
def test_a_worker_may_listen_and_lets_the_line_nodes_in(name: str, helm: Any, tmp_path: Path) -> None:
    rendered = Rendered(helm, VALUES[name])
    command, _, _, option, listen, *_ = rendered.arguments("worker")
    assert (command, option) == ("worker", "--listen")
    worker, line = rendered.configuration(tmp_path, "worker"), rendered.configuration(tmp_path)
    host, port = remote.listen_address(listen)
    assert (host, port) == ("10.1.2.3", 7400)
    remote.check_listener(worker.remote, host)
    assert worker.remote == line.remote
    assert worker.remote.token == REMOTE
    assert worker.tts.engine == line.tts.engine
    assert worker.tts.num_threads == int(rendered.container("worker")["resources"]["limits"]["cpu"])


def test_a_certificate_is_of_both_sides(helm: Any, tmp_path: Path) -> None:
    rendered = Rendered(helm, GPU_WORKERS)
    for container in ("cc-tts", "worker"):
        (tls,) = (each for each in rendered.pod(container)["volumes"] if each["name"] == "tls")
        assert tls["secret"]["secretName"] == "workers-tls"
        folder = mounts(rendered.container(container))["tls"]["mountPath"]
        found = rendered.configuration(tmp_path, container).remote
        assert found.certificate_file == f"{folder}/tls.crt"
        assert found.private_key_file == f"{folder}/tls.key"
        assert found.ca_file == f"{folder}/ca.crt"


@pytest.mark.parametrize(("values", "container"), [(GPU_WORKERS, "worker"), (RAY_CLUSTER, "pool")])
def test_the_generation_is_that_of_the_workers(
    values: dict[str, Any], container: str, helm: Any, tmp_path: Path
) -> None:
    rendered = Rendered(helm, values)
    assert rendered.arguments(container)[-2:] == ["--generation", "b"]
    assert rendered.configuration(tmp_path).tts.generations == {"b": 0.05}
    assert rendered.configuration(tmp_path, container).tts.generations == {}


def test_without_workers_the_line_nodes_speak(helm: Any, tmp_path: Path) -> None:
    line = Rendered(helm, TOKENS).configuration(tmp_path)
    assert (line.tts.workers, line.tts.devices) == ((), TtsConfig().devices)


# --- calls of other nodes --------------------------------------------------------------------------------------------


def test_ids_name_the_node_and_its_address_is_known(helm: Any, tmp_path: Path) -> None:
    config = Rendered(helm, TOKENS).configuration(tmp_path)
    nodes = LineNodes(config.server, config.cluster)
    assert nodes.new_id("call").startswith("call_node-1_")
    assert nodes.base_url == "http://192.0.2.1:8080"


def test_the_address_of_a_node_may_have_its_name(helm: Any, tmp_path: Path) -> None:
    values = {**TOKENS, "http": {"baseUrl": "https://$(CC_TTS_SERVER__NODE).example.com"}}
    config = Rendered(helm, values).configuration(tmp_path)
    assert LineNodes(config.server, config.cluster).base_url == "https://node-1.example.com"


def test_a_table_of_nodes_may_have_the_address_too(helm: Any, tmp_path: Path) -> None:
    table = '[cluster.nodes]\n"node-1" = "http://192.0.2.1:8080"\n"node-2" = "http://192.0.2.2:8080"\n'
    config = Rendered(helm, {**TOKENS, "config": table}).configuration(tmp_path)
    assert LineNodes(config.server, config.cluster).addresses == {"node-2": "http://192.0.2.2:8080"}


# --- the life of a worker --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [WORKERS, GPU_WORKERS], ids=["cpu", "gpu"])
def test_a_worker_has_time_to_load_and_to_speak_to_the_end(values: dict[str, Any], helm: Any) -> None:
    rendered = Rendered(helm, values)
    assert rendered.pod("worker")["terminationGracePeriodSeconds"] > DRAIN_TIMEOUT_S
    startup = rendered.container("worker")["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= TtsConfig().worker_start_timeout_s


def test_a_worker_is_asked_by_its_health_service_where_the_kubelet_can(helm: Any) -> None:
    plain, tls = (Rendered(helm, values).container("worker") for values in (WORKERS, GPU_WORKERS))
    assert plain["readinessProbe"]["grpc"] == {"port": 7400}
    assert tls["readinessProbe"]["tcpSocket"] == {"port": "grpc"}
    for container in (plain, tls):  # an engine that is started again is not a reason to end it
        assert container["livenessProbe"]["tcpSocket"] == {"port": "grpc"}


@pytest.mark.parametrize("name", ["workers", "workers with gpus", "a ray cluster", "a ray cluster without gpus"])
def test_one_worker_is_away_at_a_time(name: str, helm: Any) -> None:
    rendered = Rendered(helm, VALUES[name])
    budgets = {each["metadata"]["name"]: each["spec"] for each in rendered.documents if "Budget" in each["kind"]}
    if "ray" in name:
        (group,) = rendered.one("RayCluster", name="voice-ray")["spec"]["workerGroupSpecs"]
        assert budgets["voice-ray"]["minAvailable"] == group["replicas"]  # with the head they are one more
    else:
        strategy = rendered.one("Deployment", name="voice-worker")["spec"]["strategy"]
        assert strategy["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
        assert budgets["voice-worker"]["maxUnavailable"] == 1


# --- the pool and Ray ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [POOL, POOL_AND_WORKERS, RAY_CLUSTER], ids=["pool", "both", "ray"])
def test_line_nodes_and_pool_find_each_other(values: dict[str, Any], helm: Any, tmp_path: Path) -> None:
    rendered = Rendered(helm, values)
    line, pool = rendered.configuration(tmp_path), rendered.configuration(tmp_path, "pool")
    address = remote.parse(line.tts.workers[-1])
    assert (address.scheme, address.host) == ("pool", "voice-pool.telephony.svc")
    assert remote.pool_url(line) == line.cluster.pool_url == f"http://{address.host}:{address.port}"
    (port,) = rendered.one("Service", name="voice-pool")["spec"]["ports"]
    host, listens = remote.listen_address(rendered.arguments("pool")[4])
    assert (port["port"], port["targetPort"], listens) == (address.port, "http", address.port)
    remote.check_listener(pool.remote, host, who="pool")
    assert pool.remote.token == line.remote.token == REMOTE


def test_workers_of_both_kinds_are_used_together(helm: Any, tmp_path: Path) -> None:
    found = Rendered(helm, POOL_AND_WORKERS).configuration(tmp_path).tts.workers
    assert [remote.parse(each).scheme for each in found] == ["dns", "pool"]


@pytest.mark.parametrize("values", [RAY_CLUSTER, RAY_WITHOUT_GPUS], ids=["gpu", "cpu"])
def test_everybody_in_the_ray_cluster_has_its_token(values: dict[str, Any], helm: Any) -> None:
    rendered = Rendered(helm, values)
    for container in ("ray-head", "ray-worker", "pool"):
        found = rendered.environment(container)
        assert (found["RAY_AUTH_MODE"], found["RAY_AUTH_TOKEN"]) == ("token", RAY), container


def test_the_pool_reaches_the_head_that_kuberay_names(helm: Any, tmp_path: Path) -> None:
    rendered = Rendered(helm, RAY_CLUSTER)
    name = rendered.one("RayCluster", name="voice-ray")["metadata"]["name"]
    assert rendered.configuration(tmp_path, "pool").pool.ray_address == f"ray://{name}-head-svc.telephony.svc:10001"
    ports = {each["name"]: each["containerPort"] for each in rendered.container("ray-head")["ports"]}
    assert ports["client"] == 10001
    (long,) = (each for each in Rendered(helm, RAY_CLUSTER, release="a" * 53).documents if each["kind"] == "RayCluster")
    assert len(long["metadata"]["name"] + "-head-svc") <= MAX_SERVICE_CHARS_OF_KUBERAY


def test_the_services_of_kuberay_find_its_pods(helm: Any) -> None:
    for name, template in Rendered(helm, RAY_CLUSTER).templates():
        if name.startswith("ray-"):  # KubeRay puts kuberay there, and selects by it
            assert "app.kubernetes.io/name" not in template["metadata"]["labels"], name


def test_nothing_is_placed_on_the_head(helm: Any) -> None:
    rendered = Rendered(helm, RAY_CLUSTER)
    head = rendered.one("RayCluster", name="voice-ray")["spec"]["headGroupSpec"]["rayStartParams"]
    assert (head["num-cpus"], head["num-gpus"]) == ("0", "0")
    assert gpus(rendered.container("ray-head")) == 0


@pytest.mark.parametrize(("values", "num"), [(RAY_CLUSTER, 1), (RAY_WITHOUT_GPUS, 0)], ids=["gpu", "cpu"])
def test_the_pool_places_a_worker_on_each_machine_of_the_group(values: dict[str, Any], num: int, helm: Any) -> None:
    rendered = Rendered(helm, values)
    (group,) = rendered.one("RayCluster", name="voice-ray")["spec"]["workerGroupSpecs"]
    assert gpus(rendered.container("ray-worker")) == num
    assert group["rayStartParams"].get("num-gpus", "0") == str(num)
    offered = group["rayStartParams"].get("resources", "")
    assert offered == ("" if num else f'"{{\\"{CPU_RESOURCE}\\": 1}}"')  # a word of the shell that KubeRay writes
    assert group["minReplicas"] == group["maxReplicas"] == group["replicas"]


def test_ray_has_the_version_of_the_images(helm: Any) -> None:
    cluster = Rendered(helm, RAY_CLUSTER).one("RayCluster", name="voice-ray")
    for file in ("ray.txt", "gpu.lock", "gpu-cuda12.lock"):
        pinned = re.search(r"^ray==(\S+)", (ROOT / "requirements" / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert pinned is not None
        assert cluster["spec"]["rayVersion"] == pinned[1]


def test_prometheus_has_the_token_of_the_pool(helm: Any) -> None:
    rendered = Rendered(helm, RAY_CLUSTER)
    monitor = rendered.one("ServiceMonitor", name="voice-pool")
    (endpoint,) = monitor["spec"]["endpoints"]
    credentials = endpoint["authorization"]["credentials"]
    assert rendered.one("Secret", name=credentials["name"])["stringData"][credentials["key"]] == REMOTE
    assert "jobLabel" not in monitor["spec"]  # the alerts of job="cc-tts" are of line nodes
    labels = rendered.one("Service", name="voice-pool")["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()


# --- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALUES)
def test_no_selector_takes_the_pods_of_another_component(name: str, helm: Any) -> None:
    rendered = Rendered(helm, VALUES[name])
    labels = [template["metadata"]["labels"] for _, template in rendered.templates()]
    for document in rendered.documents:
        if "spec" not in document or document["kind"] == "ServiceMonitor":
            continue
        spec = document["spec"]
        selector = spec.get("selector") or spec.get("podSelector")
        if selector is not None:
            wanted = selector.get("matchLabels", selector)
            taken = {each["app.kubernetes.io/component"] for each in labels if wanted.items() <= each.items()}
            assert taken == {document["metadata"]["labels"]["app.kubernetes.io/component"]}, document["metadata"]


def test_each_has_the_image_that_it_needs(helm: Any) -> None:
    def images(values: dict[str, Any]) -> dict[str, str]:
        rendered = Rendered(helm, values)
        found = {name: rendered.container(name)["image"] for name, _ in rendered.templates()}
        assert found.pop("test") == found["cc-tts"]
        return found

    assert images(WORKERS)["worker"] == f"cc-tts:{__version__}"
    assert images(WORKERS_HPA)["worker"] == f"cc-tts:{__version__}-gpu"
    assert images(GPU_WORKERS)["worker"] == "cc-tts@sha256:" + "1" * 64
    assert images(POOL)["pool"] == f"cc-tts:{__version__}-ray"
    assert images(RAY_WITHOUT_GPUS) == {
        "cc-tts": f"cc-tts:{__version__}",
        "pool": f"cc-tts:{__version__}-ray",
        "ray-head": f"cc-tts:{__version__}-ray",
        "ray-worker": f"cc-tts:{__version__}-ray",
    }
    assert images(RAY_CLUSTER) == {
        "cc-tts": f"cc-tts:{__version__}",
        "pool": "cc-tts@sha256:" + "2" * 64,
        "ray-head": "cc-tts@sha256:" + "2" * 64,
        "ray-worker": "cc-tts@sha256:" + "1" * 64,
    }
    stages = re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"runtime", "runtime-ray", "runtime-gpu"} <= set(stages)


def test_the_network_policies_let_line_nodes_in_by_address(helm: Any) -> None:
    lines = [{"ipBlock": {"cidr": "192.0.2.0/24"}}]  # they are on the host's network, which no selector of pods takes
    (workers,) = Rendered(helm, GPU_WORKERS).one("NetworkPolicy", name="voice-worker")["spec"]["ingress"]
    assert workers == {"ports": [{"port": 7400, "protocol": "TCP"}], "from": lines}
    rendered = Rendered(helm, RAY_CLUSTER)
    to_pool, from_hosts, from_operators = rendered.one("NetworkPolicy", name="voice-pool")["spec"]["ingress"]
    assert to_pool == {"ports": [{"port": 8090, "protocol": "TCP"}], "from": lines}
    (hosts,) = from_hosts["from"]
    assert hosts["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "ray"
    assert from_operators["from"] == [{"ipBlock": {"cidr": "198.51.100.0/24"}}]
    within, to_workers = rendered.one("NetworkPolicy", name="voice-ray")["spec"]["ingress"]
    allowed = {each["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for each in within["from"]}
    assert allowed == {"ray", "pool"}
    ports = [{"port": 7400, "endPort": 7400 + NUM_PORTS - 1, "protocol": "TCP"}]
    assert to_workers == {"ports": ports, "from": lines}


DNS = {(None, 53)}
CALLS = {("203.0.113.0/24", None)}


@pytest.mark.parametrize(
    ("values", "policy", "reached"),
    [
        (EVERYTHING, "voice", DNS | CALLS | {(None, 9060)}),
        (GPU_WORKERS, "voice", DNS | {(None, None), ("worker", 7400)}),
        (GPU_WORKERS, "voice-worker", DNS),
        (POOL_AND_WORKERS, "voice", DNS | {(None, None), ("worker", 7400), ("pool", 8090)}),
        (POOL_AND_WORKERS, "voice-pool", DNS | {(None, 10001)}),
        (RAY_CLUSTER, "voice", DNS | {(None, None), ("ray", 7400), ("pool", 8090)}),
        (RAY_CLUSTER, "voice-pool", DNS | {("ray", None)}),
        (RAY_CLUSTER, "voice-ray", DNS | {("ray", None), ("pool", 8090)}),
    ],
)
def test_pods_may_send_to_what_they_need_and_no_further(
    values: dict[str, Any], policy: str, reached: set[tuple[str | None, int | None]], helm: Any
) -> None:
    found = set()
    spec = Rendered(helm, values).one("NetworkPolicy", name=policy)["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    for rule in spec["egress"]:
        for peer in rule.get("to", [{}]):
            labels = peer.get("podSelector", {}).get("matchLabels", {})
            whom = labels.get("app.kubernetes.io/component") or peer.get("ipBlock", {}).get("cidr")
            found |= {(whom, port.get("port")) for port in rule.get("ports", [{}])}
    assert found == reached


def test_workers_are_scaled_by_what_the_line_nodes_know_of_them(helm: Any) -> None:
    (metric,) = Rendered(helm, WORKERS_HPA).one("HorizontalPodAutoscaler", name="voice-worker")["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == "cctts_engine_utilisation_ratio"
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "600m"}
    keda = Rendered(helm, GPU_WORKERS)
    scaled = keda.one("ScaledObject", name="voice-worker")["spec"]
    assert scaled["scaleTargetRef"]["name"] == "voice-worker"
    assert scaled["minReplicaCount"] >= 1
    assert "replicas" not in keda.one("Deployment", name="voice-worker")["spec"]
    down = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert down["stabilizationWindowSeconds"] == hints.CALM_FOR_S
    busy, more = (trigger["metadata"] for trigger in scaled["triggers"])
    assert float(busy["threshold"]) == hints.BUSY_UTILISATION
    assert f"> bool {hints.LATE_SHARE * 0.2:g} " in more["query"]  # tts.first_audio_target_ms = 200
    known = {family.name + ("_total" if family.type == "counter" else "") for family in Metrics().registry.collect()}
    asked = set(re.findall(r"cctts_\w+", busy["query"] + more["query"]))
    assert asked == {
        "cctts_engine_utilisation_ratio",
        "cctts_engine_first_audio_seconds",
        "cctts_engine_refusals_total",
    }
    assert asked <= known


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({**ALL_TOKENS, "workers": {"kind": "RayCluster"}}, "wants pool.enabled"),
        ({**ALL_TOKENS, "pool": {"enabled": True}}, "pool.rayAddress is needed"),
        ({**TOKENS, "workers": {"kind": "Deployment"}}, "secret.remoteToken is needed"),
        ({**TOKENS, **POOL, "secret": {**ALL_TOKENS["secret"], "rayToken": ""}}, "secret.rayToken is needed"),
        ({**POOL_AND_WORKERS, "workers": {"kind": "Deployment", "tlsSecret": "a"}}, "workers.tlsSecret is for"),
        ({**RAY_CLUSTER, "workers": {"kind": "RayCluster", "autoscaling": {"method": "hpa"}}}, "wants workers.kind"),
        ({**WORKERS, "workers": {"kind": "Deployment", "autoscaling": {"method": "keda"}}}, "prometheusAddress"),
        ({**ALL_TOKENS, "workers": {"kind": "DaemonSet"}}, "workers"),
        ({**ALL_TOKENS, "workers": {"kind": "Deployment", "generation": "a b"}}, "generation"),
        ({**ALL_TOKENS, "workers": {"kind": "Deployment", "resources": {"gpus": 2}}}, "gpus"),
        ({**ALL_TOKENS, "workers": {"kind": "Deployment", "autoscaling": {"minReplicas": 0}}}, "minReplicas"),
        ({"secret": {**ALL_TOKENS["secret"], "remoteToken": "short"}}, "remoteToken"),
        ({**POOL, "pool": {"enabled": True, "rayAddress": "10.0.0.9:6379"}}, "rayAddress"),
        ({**TOKENS, "http": {"baseUrl": "line.example.com"}}, "baseUrl"),
    ],
    ids=str,
)
def test_values_that_do_not_go_together_are_refused(values: dict[str, Any], why: str, helm: Any) -> None:
    with pytest.raises(Exception, match=re.escape(why)):
        Rendered(helm, values)


def test_the_hpa_of_line_nodes_leaves_workers_alone(helm: Any) -> None:
    assert "voice-worker" not in {each["metadata"]["name"] for each in Rendered(helm, HPA).documents}


def test_the_pods_with_the_fewest_calls_go_first(tmp_path: Path) -> None:
    """With a kubectl and a curl that say what a cluster would: the first pod has 12 calls, the second does not answer."""
    metrics = Metrics()
    metrics.calls_active.set(12)
    (tmp_path / "series").write_bytes(metrics.render())
    fakes = {
        "kubectl": f'case "$*" in *"get pods"*) printf "voice-a 192.0.2.1 8080\\nvoice-b 192.0.2.2 8080\\n";; '
        f'*) echo "$*" >> {tmp_path}/asked;; esac',
        "curl": f'read -r header || true; [[ "$*" == *192.0.2.1:8080/metrics && $header == *" a-token" ]] && '
        f"cat {tmp_path}/series",
    }
    for name, script in fakes.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / "deploy/helm/deletion_cost.sh", "voice", "telephony"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "METRICS_TOKEN": "a-token"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == "voice-b does not say how many calls it has\n"
    assert (tmp_path / "asked").read_text(encoding="utf-8").splitlines() == [
        "--namespace telephony annotate pod voice-a --overwrite controller.kubernetes.io/pod-deletion-cost=12"
    ]


def page() -> str:
    text = (ROOT / "docs/operators/install.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Kubernetes\n(.*?)(?:^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return str(section)


def test_the_values_on_the_page_about_kubernetes_make_workers(helm: Any, tmp_path: Path) -> None:
    shown = re.findall(r"```yaml\n(.*?)```", page(), re.DOTALL)
    (values,) = (yaml.safe_load(each) for each in shown if "workers:" in each)
    rendered = Rendered(helm, {"secret": {"existing": "voice-tokens"}, **values})
    line, worker = rendered.configuration(tmp_path), rendered.configuration(tmp_path, "worker")
    assert line.tts.engine == worker.tts.engine == COSYVOICE2
    assert line.tts.workers
    assert {mount["mountPath"] for mount in rendered.container("worker")["volumeMounts"]} >= {"/models"}
    assert worker.tts.models["main"].model_dir.startswith("/models/")
    assert worker.tts.voices_dir.startswith("/models/")
    documents = Rendered(helm, {**RAY_CLUSTER, "secret": {"existing": "voice-tokens"}}).documents
    wanted = set(re.findall(r'"key": "([\w-]+)", "name": "voice-tokens"', json.dumps(documents, sort_keys=True)))
    assert wanted == set(re.findall(r"--from-literal=([\w-]+)=", page()))


def test_series_that_the_page_about_kubernetes_names_exist() -> None:
    asked = set(re.findall(r"cctts_\w+[a-z]", page()))
    known = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in (*Metrics().registry.collect(), *pool_registry().collect())
    }
    assert {"cctts_engine_utilisation_ratio", "cctts_calls_active"} <= asked <= known
