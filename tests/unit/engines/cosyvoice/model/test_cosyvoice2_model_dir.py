"""``cc-tts model check`` and ``cc-tts model download``."""

import argparse
import hashlib
import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from cc_tts.engines.cosyvoice.model import directory as model_dir
from cc_tts.engines.cosyvoice.model import download
from cc_tts.engines.cosyvoice.model.directory import add_model_commands, check_model_dir, needed_files
from cc_tts.engines.cosyvoice.model.download import DownloaderMissing, DownloadFailed, download_model

pytestmark = pytest.mark.unit


def replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def state_of(report: model_dir.ModelDirReport, name: str) -> tuple[str, str]:
    file = next(file for file in report.files if file.name == name)
    return file.state, file.detail


def test_a_whole_directory_of_another_size_passes_with_remarks(whole: Path) -> None:
    report = check_model_dir(whole)
    assert report.exit_code == 0
    assert not report.faults
    assert state_of(report, "llm.pt") == ("differs", "published: 2,023,316,821 bytes")
    assert state_of(report, "speech_tokenizer_v2.batch.onnx") == ("unused", "not there, not needed")
    assert any("layers 2, published 24" in remark for remark in report.remarks)
    text = str(report)
    assert text.endswith("This directory can be used.")
    assert all(file.name in text for file in report.files)


def test_the_published_bytes_are_recognised_and_not_looked_into(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"no weights, but published"
    sha256 = hashlib.sha256(data).hexdigest()[:16]
    published = [model_dir.PublishedFile(name, len(data), sha256, "engine") for name in ("hift.pt", "cosyvoice2.yaml")]
    monkeypatch.setattr(model_dir, "PUBLISHED", {2: published})
    replace(model / "hift.pt", data)
    replace(model / "cosyvoice2.yaml", data[:-1] + b"!")
    report = check_model_dir(model)
    assert state_of(report, "hift.pt") == ("published", "")
    assert state_of(report, "cosyvoice2.yaml") == ("differs", "other content than published")
    replace(model / "hift.pt", data[:-1] + b"!")
    assert state_of(check_model_dir(model), "hift.pt")[0] == "wrong"


def test_missing_files_are_faults(model: Path) -> None:
    (model / "flow.pt").unlink()
    (model / "campplus.onnx").unlink()
    report = check_model_dir(model)
    assert report.exit_code == 1
    assert report.faults == (
        "flow.pt: not there; needed for speaking",
        "campplus.onnx: not there; needed for enrolling voices",
    )
    assert str(report).endswith("This directory cannot be used.")


def test_everything_wrong_is_in_one_report(model: Path) -> None:
    replace(model / "llm.pt", b"version https://git-lfs.github.com/spec/v1\n")
    replace(model / "flow.pt", (model / "flow.pt").read_bytes()[:100_000])
    replace(model / "campplus.onnx", (model / "campplus.onnx").read_bytes()[:1000])
    replace(model / "CosyVoice-BlankEN" / "vocab.json", b"[]")
    replace(model / "CosyVoice-BlankEN" / "merges.txt", b"a b\n" * 420_000)
    report = check_model_dir(model)
    assert state_of(report, "llm.pt")[1].startswith("this is a Git LFS pointer")
    assert state_of(report, "flow.pt")[1].startswith("cannot be read, 100,000 bytes")
    assert state_of(report, "campplus.onnx")[1].startswith("not a whole ONNX graph")
    assert state_of(report, "CosyVoice-BlankEN/vocab.json") == ("wrong", "not a JSON object")
    assert state_of(report, "CosyVoice-BlankEN/merges.txt")[1].startswith("this is the stock Qwen2 file")
    assert len(report.faults) == 5


def test_files_of_two_models_are_noticed(model: Path) -> None:
    config = model / "CosyVoice-BlankEN" / "config.json"
    replace(config, config.read_bytes().replace(b'"num_hidden_layers": 2', b'"num_hidden_layers": 24'))
    report = check_model_dir(model)
    assert report.exit_code == 1
    assert "layers is 2, config.json says 24" in report.faults[0]


def test_another_version_is_named_first(model: Path) -> None:
    (model / "cosyvoice2.yaml").rename(model / "cosyvoice.yaml")
    report = check_model_dir(model)
    assert "holds cosyvoice.yaml, so it is CosyVoice 1" in report.faults[0]


def test_without_torch_only_the_files_are_checked(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    absent = {"torch", "onnxruntime"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in absent else find_spec(name))
    report = check_model_dir(model)
    assert report.exit_code == 0
    assert any("torch is not installed" in remark for remark in report.remarks)
    assert any("onnxruntime is not installed" in remark for remark in report.remarks)


def test_no_directory_is_a_fault(tmp_path: Path) -> None:
    report = check_model_dir(tmp_path / "nowhere")
    assert report.exit_code == 1
    assert "no such directory" in str(report)


def command_line(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_model_commands(parser.add_subparsers().add_parser("model"), parents=[])
    return parser.parse_args(arguments)


def test_the_check_prints_the_table_and_gives_the_exit_status(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = command_line("model", "check", str(whole))
    assert options.run(options, None) == 0
    assert "hift.pt" in capsys.readouterr().out
    options = command_line("model", "check", str(whole / "nowhere"))
    assert options.run(options, None) == 1


def test_options_of_every_command_can_be_handed_in() -> None:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path)
    parser = argparse.ArgumentParser()
    add_model_commands(parser.add_subparsers().add_parser("model"), parents=[common])
    assert parser.parse_args(["model", "check", "here", "--config", "x.toml"]).config == Path("x.toml")


class FakeSite(ModuleType):
    """Stands in for the package ``modelscope``."""

    def __init__(self, source: Path, error: BaseException | None = None) -> None:
        super().__init__("modelscope")
        self.source, self.error = source, error
        self.asked: dict[str, Any] = {}

    def snapshot_download(self, model_id: str, *, local_dir: str, allow_patterns: list[str]) -> str:
        self.asked = {"model_id": model_id, "allow_patterns": allow_patterns}
        if self.error:
            raise self.error
        shutil.copytree(self.source, local_dir, dirs_exist_ok=True)
        return local_dir


def test_a_download_takes_what_is_needed_and_is_checked(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = FakeSite(whole)
    monkeypatch.setitem(sys.modules, "modelscope", site)
    options = command_line("model", "download", "--to", str(tmp_path / "models" / "here"))
    assert options.run(options, None) == 0
    assert site.asked == {"model_id": "iic/CosyVoice2-0.5B", "allow_patterns": list(needed_files(2))}
    assert "llm.pt" in site.asked["allow_patterns"]
    assert "CosyVoice-BlankEN/model.safetensors" not in site.asked["allow_patterns"]
    assert "This directory can be used." in capsys.readouterr().out


def test_the_cache_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert download.default_directory() == tmp_path / "cc-tts" / "models" / "CosyVoice2-0.5B"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert download.default_directory().parts[-4:] == (".cache", "cc-tts", "models", "CosyVoice2-0.5B")


@pytest.mark.parametrize("error", [OSError("connection reset"), RuntimeError("no space left"), KeyboardInterrupt()])
def test_a_broken_download_says_that_it_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setitem(sys.modules, "modelscope", FakeSite(tmp_path, error))
    with pytest.raises(DownloadFailed, match="the same command resumes"):
        download_model("cosyvoice2", tmp_path / "to", files=["llm.pt"])


def test_a_missing_package_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modelscope", None)
    with pytest.raises(DownloaderMissing, match=r"pip install modelscope.*cc-tts model check DIR"):
        download_model("cosyvoice2", tmp_path, files=["llm.pt"])
