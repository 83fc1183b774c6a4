import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from lab.cosyvoice.tiny_model import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def model(whole: Path, tmp_path: Path) -> Path:
    """A directory of one's own to spoil: links, so replace files rather than write into them."""
    return Path(shutil.copytree(whole, tmp_path / "model", copy_function=os.link))
