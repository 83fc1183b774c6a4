"""Hold the splitting of text against recorded parts: ``python -m tests.parity.splitting_check DIR``.

A command of its own, because engines do not import the text front end; the parity command of CosyVoice 2 starts it. It
writes one JSON object: for each file that is there, how many cases it has and how many of them differ.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.parity.splitting import split_paragraph


def differing(directory: Path) -> dict[str, list[int]]:
    """Of each file that is there: a 1 for each case that differs, a 0 for each that does not."""
    found: dict[str, list[int]] = {}
    path = directory / "text_splitting.json"
    if path.is_file():
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found[path.name] = [
            int(split_paragraph(case["cleaned"], _words, case["lang"], **stored["limits"]) != case["parts"])
            for case in stored["cases"]
        ]
    path = directory / "spec" / "split.json"
    if path.is_file():
        found[f"spec/{path.name}"] = [_differs(case) for case in json.loads(path.read_text(encoding="utf-8"))]
    return found


def _words(text: str) -> list[str]:
    return text.split(" ")


def _differs(case: dict[str, Any]) -> int:
    parts = split_paragraph(case["text"], str.split, case["lang"])
    # where the reference fails on a mark and a quotation mark at the beginning, something must come out of ours
    return int(not parts if case["out"] == "IndexError" else parts != case["out"])


def main(arguments: Sequence[str]) -> int:
    """Write the result for the directory named."""
    (directory,) = arguments
    json.dump(differing(Path(directory)), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
