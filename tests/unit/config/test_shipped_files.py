"""The files of ``cc-tts config init``: who may read them."""

from pathlib import Path

import pytest

from cc_tts.config import shipped

pytestmark = pytest.mark.unit


def test_prometheus_and_grafana_can_read_theirs_and_nobody_the_server_s(tmp_path: Path) -> None:
    written = shipped.write(tmp_path, force=False)
    modes = {path.relative_to(tmp_path): path.stat().st_mode & 0o777 for path in written}
    assert {mode for path, mode in modes.items() if len(path.parts) == 1} == {0o600}
    assert {mode for path, mode in modes.items() if len(path.parts) > 1} == {0o644}
    assert modes[Path("cc_tts.toml")] == 0o600
    assert Path("prometheus/alerts.yml") in modes
