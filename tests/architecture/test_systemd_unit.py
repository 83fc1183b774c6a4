"""The unit file and the drop-in for systemd."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cc_tts.config import schema
from cc_tts.processes import adoption, systemd
from cc_tts.ua.process.loop import NICE

pytestmark = pytest.mark.architecture

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy/systemd/cc-tts.service"
DROP_IN = ROOT / "deploy/systemd/cc-tts.service.d/gpu.conf"
TIMEOUT_S = 60
MAX_EXPOSURE = 20
"""Of ``systemd-analyze security``, tenths: what it calls OK ends at 4.0."""


def assignments(path: Path) -> dict[str, list[str]]:
    """Every key of the section Service with its values in order."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and line and not line.startswith("#"):
            key, sign, value = line.partition("=")
            assert sign, line
            found.setdefault(key, []).append(value)
    return found


def value(key: str) -> str:
    (found,) = assignments(UNIT)[key]
    return found


def test_the_manager_waits_for_ready_reloads_by_sighup_and_watches() -> None:
    assert (value("Type"), value("NotifyAccess")) == ("notify", "main")
    assert value("ExecReload") == "/bin/kill -HUP $MAINPID"
    assert float(value("WatchdogSec")) > 3 * systemd.INTERVAL_S


def test_a_drain_is_not_cut_short() -> None:
    assert value("KillMode") == "process"  # the UA process does not get the SIGTERM that begins a drain
    assert float(value("TimeoutStopSec")) >= schema.CallsConfig().drain_timeout_s + 10
    for key in ("TimeoutStartSec", "TimeoutStopSec"):
        assert float(value(key)) > systemd.EXTENSION_S  # so that the first extension comes in time


def test_calls_outlive_a_restart() -> None:
    assert value("KillMode") == "process"  # what the main process leaves is not killed
    assert value("RestartKillSignal") == "SIGUSR2"
    assert (value("RuntimeDirectoryMode"), value("RuntimeDirectoryPreserve")) == ("0700", "restart")
    path = adoption.socket_path(
        {"RUNTIME_DIRECTORY": f"/run/{value('RuntimeDirectory')}"}, "ua-255.255.255.255-65535-65535-16"
    )
    assert len(str(path)) <= adoption.MAX_PATH_BYTES
    assert float(value("RestartSec")) * 1000 < schema.UaConfig().orphan_grace_ms / 2


def test_a_wrong_configuration_is_not_tried_again() -> None:
    assert (value("Restart"), value("RestartPreventExitStatus")) == ("on-failure", "2")


def test_nothing_is_privileged() -> None:
    assert value("User") == "cc-tts"
    assert value("CapabilityBoundingSet") == value("AmbientCapabilities") == ""
    assert value("LimitNICE") == str(NICE)  # which takes no capability
    for key in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "RestrictSUIDSGID"):
        assert value(key) == "yes", key
    assert value("ProtectSystem") == "strict"
    ports = (
        schema.SipConfig().port,
        schema.SipConfig().tls_port,
        schema.HttpConfig().port,
        schema.RtpConfig().port_min,
    )
    assert min(ports) > 1023


def test_the_accounting_file_of_the_documents_can_be_written() -> None:
    (example,) = set(
        re.findall(r"(/var/log/\S+\.jsonl)", (ROOT / "docs/operators/observe.md").read_text(encoding="utf-8"))
    )
    assert str(Path(example).parent) == f"/var/log/{value('LogsDirectory')}"
    assert value("LogsDirectoryMode") == "0750"


def test_no_secret_is_in_the_unit() -> None:
    text = UNIT.read_text(encoding="utf-8") + DROP_IN.read_text(encoding="utf-8")
    assert "/etc/cc-tts/environment" in value("EnvironmentFile")
    assert not re.search(r"(?i)(token|password)s?\s*=", text)


def test_the_drop_in_replaces_what_it_changes() -> None:
    changed = assignments(DROP_IN)
    assert changed["ExecStart"][0] == ""
    assert changed["ExecStart"][1] == value("ExecStart").replace("cc_tts.toml", "cc_tts.gpu.toml")
    assert changed["PrivateDevices"] == ["no"]
    assert any("nvidia" in device for device in changed["DeviceAllow"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("with_drop_in", [False, True])
def test_systemd_agrees(with_drop_in: bool, tmp_path: Path) -> None:
    program = shutil.which("true")
    assert program is not None
    unit = tmp_path / UNIT.name
    files = [UNIT, DROP_IN] if with_drop_in else [UNIT]
    for source, target in zip(files, (unit, tmp_path / f"{UNIT.name}.d" / DROP_IN.name), strict=False):
        target.parent.mkdir(exist_ok=True)
        target.write_text(source.read_text(encoding="utf-8").replace("/opt/cc-tts/bin/cc-tts", program))
    checks = (["verify"], ["security", "--no-pager", "--offline=true", f"--threshold={MAX_EXPOSURE}"])
    for check in checks:
        argv = ["systemd-analyze", *check, str(unit)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        if check == ["verify"]:
            assert done.stderr == ""
