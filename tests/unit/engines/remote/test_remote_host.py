from pathlib import Path

import pytest

pytest.importorskip("grpc")

from cc_tts.config import load as configuration
from cc_tts.engines.remote.host import run
from cc_tts.errors import ConfigError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("key", ["tts.devices", "tts.models.v2.devices"])
def test_the_key_that_names_too_many_devices_is_told(key: str, tmp_path: Path) -> None:
    two = '=["cuda:0", "cuda:1"]'
    config = configuration.load(overrides=[f"tts.models.v2.model_dir={tmp_path}", f"tts.devices{two}", f"{key}{two}"])
    with pytest.raises(ConfigError) as caught:
        run(config, "127.0.0.1:7400")
    assert f"{key} names 2" in caught.value.detail
    assert f"--set '{key}=[" in caught.value.detail
