"""What all tests on a CUDA device share."""

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from tests.support.small_engine import let_hops_double  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _same_every_time() -> Iterator[None]:
    """No TF32, so that the same sums in other shapes give the same numbers; hops and crossfades at the same places."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    with pytest.MonkeyPatch.context() as patch:
        let_hops_double(patch)
        yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(scope="module")
def device() -> str:
    """The last card: where there are several, one that is not the current one from the start."""
    return f"cuda:{torch.cuda.device_count() - 1}"
