"""Hooks of MkDocs (mkdocs.yml): the site has the files outside docs/ that its pages link to, as pages or to be downloaded.

A link is resolved as on disk. The README and the CHANGELOG are pages of the first level.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs"
ELSEWHERE = "files"
"""Files that are no part of docs/ are below this folder of the site."""
FRONT_PAGES = ("README.md", "README.zh-CN.md", "CHANGELOG.md")
DECISIONS = "decisions"
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")


def _source_of(page: str) -> str:
    """Return the path of a page of the site in the repository."""
    if page in FRONT_PAGES:
        return page
    return page.removeprefix(f"{ELSEWHERE}/") if page.startswith(f"{ELSEWHERE}/") else f"{DOCS}/{page}"


def _place_of(source: str) -> str:
    """Return where the site has a file of the repository."""
    if source.startswith(f"{DOCS}/"):
        return source.removeprefix(f"{DOCS}/")
    return source if source in FRONT_PAGES else f"{ELSEWHERE}/{source}"


def _target(source: str, link: str) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    is_folder_page = target == f"{DOCS}/{DECISIONS}" or (ROOT / target / "README.md").is_file()
    return f"{target}/README.md" if is_folder_page else target


def _decisions() -> str:
    """Return a page that lists the records of decisions, as a folder on a code host does."""
    titles = [
        (path.name, path.read_text("utf-8").partition("\n")[0]) for path in (ROOT / DOCS / DECISIONS).glob("0*.md")
    ]
    return "\n".join(["# Decisions", "", *(f"* [{title.lstrip('# ')}]({name})" for name, title in sorted(titles))])


def on_files(files: Files, *, config: Any) -> Files:
    """Add the front pages, and all that pages link to, with what those link to."""
    wanted = [*FRONT_PAGES, *(f"{DOCS}/{file.src_uri}" for file in files if file.is_documentation_page())]
    files.append(File.generated(config, f"{DECISIONS}/README.md", content=_decisions()))
    seen = set(wanted)
    while wanted:
        source = wanted.pop()
        place = _place_of(source)
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
        if not source.endswith(".md"):
            continue
        for link, _ in LINK.findall((ROOT / source).read_text("utf-8")):
            target = _target(source, link)
            if target not in seen and (ROOT / target).is_file():
                seen.add(target)
                wanted.append(target)
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Have each link lead to where the site has the file; MkDocs reports those that lead nowhere."""
    source = _source_of(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        target = _target(source, match[1])
        is_there = (ROOT / target).is_file() or target == f"{DOCS}/{DECISIONS}/README.md"
        return posixpath.relpath(_place_of(target), here or ".") + (match[2] or "") if is_there else match[0]

    return LINK.sub(moved, markdown)
