"""The commands of docs/operators/backup.md, in a folder of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cc_tts.config import load as configuration
from cc_tts.doctor.config_command import kept

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0


def samples() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (ROOT / "docs/operators/backup.md").read_text(encoding="utf-8"), re.DOTALL)


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """A sample with the machine's folders below ``folder``."""
    shim = f'cc-tts() {{ {sys.executable} -m cc_tts.cli "$@"; }}\n'
    script = shim + script.replace("/etc/cc-tts", f"{folder}/etc/cc-tts").replace("-C /", f"-C {folder}/restored")
    argv = ["bash", "-ec", script]
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_a_backup_has_what_the_configuration_names_and_is_restored(tmp_path: Path) -> None:
    folders = {"record.dir": "recordings", "prompts.dir": "prompts", "tts.lexicons_dir": "lexicons"}
    files = {"accounting.file": "accounting.jsonl", "webhooks.file": "webhooks.jsonl"}
    lost = {"cache.disk_dir": "cache"}
    lines: dict[str, list[str]] = {}
    for key, name in (folders | files | lost).items():
        path = tmp_path / "var" / name
        path.mkdir(parents=True)
        if key in files:
            path.rmdir()
            path.write_text(f"{name}\n")
        else:
            (path / "one").write_text(f"{name}\n")
        section, _, option = key.partition(".")
        lines.setdefault(section, []).append(f'{option} = "{path}"')
    config = tmp_path / "etc/cc-tts/cc_tts.toml"
    config.parent.mkdir(parents=True)
    config.write_text("".join(f"[{section}]\n" + "\n".join(each) + "\n" for section, each in lines.items()))

    backup, restore = samples()
    done = run(tmp_path, backup)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "backup.tar.gz").stat().st_mode & 0o077 == 0
    (tmp_path / "restored").mkdir()
    done = run(tmp_path, restore.splitlines()[0])
    assert done.returncode == 0, done.stderr
    below = tmp_path / "restored" / tmp_path.relative_to("/")
    assert (below / "etc/cc-tts/cc_tts.toml").read_text() == config.read_text()
    for name in folders.values():
        assert (below / "var" / name / "one").read_text() == f"{name}\n"
    for name in files.values():
        assert (below / "var" / name).read_text() == f"{name}\n"
    assert not (below / "var/cache").exists()


def test_what_is_not_there_yet_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, f"cc-tts config files --set record.dir={tmp_path}/recordings")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"cc-tts: record.dir: {tmp_path}/recordings is not there (yet)\n"


def test_a_path_is_meant_as_the_server_takes_it(tmp_path: Path) -> None:
    (tmp_path / "voices").mkdir()
    (tmp_path / "recordings").mkdir()
    (tmp_path / "a.toml").write_text('[tts]\nvoices_dir = "~/voices"\n[record]\ndir = "recordings"\n')
    done = run(tmp_path, f"HOME={tmp_path}; export HOME; cc-tts config files --config a.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [f"{tmp_path}/{name}" for name in ("a.toml", "voices", "recordings")]


def test_the_page_names_every_key_of_a_path() -> None:
    page = (ROOT / "docs/operators/backup.md").read_text(encoding="utf-8")
    keys = [
        *("tls.certificate_file", "tls.private_key_file", "tls.ca_file", "tts.voices_dir", "tts.lexicons_dir"),
        *("remote.ca_file", "remote.certificate_file", "remote.private_key_file"),
        *("record.dir", "prompts.dir", "accounting.file", "webhooks.file", "tts.models.large.voices_dir"),
    ]
    made_again = ("cache.disk_dir", "vad.model_file", "tts.models.large.model_dir")
    config = configuration.load(overrides=[f"{key}=/a/{key}" for key in (*keys, *made_again)])
    assert {key: str(path) for key, path in kept(config)} == {key: f"/a/{key}" for key in keys}
    for key in keys:
        assert f"`{key}`" in page or f"`[{key.partition('.')[0]}" in page, key
