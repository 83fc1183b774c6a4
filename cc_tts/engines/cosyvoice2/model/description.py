"""What the description in the model directory says and the weights do not."""

import re
from pathlib import Path
from typing import Final

from cc_tts.engines.cosyvoice2.model.checkpoint import ModelFileDamaged

DESCRIPTION: Final = "cosyvoice2.yaml"
ESTIMATOR_HEAD_DIM: Final = 64
"""That of the published model (spec §2), for a directory without a description."""
_HEAD_DIM: Final = re.compile(r"^\s*attention_head_dim:\s*(\d{1,4})\s*(?:#.*)?$", re.MULTILINE)


def estimator_head_dim(directory: Path) -> int:
    """Width of an attention head of the flow's estimator; it does not follow from shapes (spec §2).

    Raises:
        ModelFileDamaged: the description cannot be read, or names widths that contradict each other.

    """
    try:
        text = (directory / DESCRIPTION).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ESTIMATOR_HEAD_DIM
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileDamaged(f"{directory / DESCRIPTION}: cannot be read: {error}") from None
    found = {int(width) for width in _HEAD_DIM.findall(text)}
    if len(found) > 1 or 0 in found:
        raise ModelFileDamaged(f"{directory / DESCRIPTION}: attention_head_dim is {sorted(found)}")
    return found.pop() if found else ESTIMATOR_HEAD_DIM
