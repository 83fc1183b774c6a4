"""Prints a bill of materials (CycloneDX 1.6) of the packages of the Python that runs this, and the server build of pjsua2.

``python bill_of_materials.py [--system] NAME VERSION``; with ``--system`` it also has the packages of Debian. It runs
inside an image (``docker run … python3 - … < bill_of_materials.py``), so it needs nothing but Python. Libraries that a
wheel carries are not told apart from the wheel.
"""

import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]
DPKG_STATUS = Path("/var/lib/dpkg/status")
SPDX_EXPRESSION = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")


def _component(name: str, version: str, purl: str, **more: Any) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, **more}


def _licences(metadata: Any) -> Component:
    """Return what a package says of its licence: an SPDX expression, or the name in a classifier."""
    expression = metadata.get("License-Expression") or ""
    if SPDX_EXPRESSION.fullmatch(expression):
        return {"licenses": [{"expression": expression}]}
    names = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or () if "License ::" in line]
    return {"licenses": [{"license": {"name": name}} for name in names]} if names else {}


def python_packages() -> Iterator[Component]:
    for each in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", each.name).lower()
        yield _component(each.name, each.version, f"pkg:pypi/{name}@{quote(each.version)}", **_licences(each.metadata))


def debian_packages() -> Iterator[Component]:
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text("utf-8").splitlines() if "=" in line
    )
    system = release["ID"].strip('"')
    for paragraph in DPKG_STATUS.read_text("utf-8").split("\n\n"):
        fields = dict(re.findall(r"(?m)^([A-Za-z-]+): (.*)$", paragraph))
        if fields.get("Status", "").endswith(" installed"):
            name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
            purl = f"pkg:deb/{system}/{quote(name)}@{quote(version)}?arch={architecture}"
            yield _component(name, version, purl)


def server_build() -> Iterator[Component]:
    """Yield pjproject, if the server build of pjsua2 is here."""
    chosen = os.environ.get("CC_TTS_PJSUA2") or "server"  # or the folder of a build elsewhere
    path = Path(f"{sys.prefix}/pjsua2-server" if chosen == "server" else chosen) / "build.json"
    if path.is_file():
        said = json.loads(path.read_text("utf-8"))
        more = {"description": said["source"], "licenses": [{"expression": "GPL-2.0-or-later"}]}
        yield _component("pjproject", said["pjproject"], f"pkg:generic/pjproject@{said['pjproject']}", **more)


def bill(name: str, version: str, *, of_system: bool) -> Component:
    found = [*python_packages(), *server_build(), *(debian_packages() if of_system else ())]
    by_reference = {each["bom-ref"]: each for each in found}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "root", "name": name, "version": version}},
        "components": [by_reference[reference] for reference in sorted(by_reference)],
    }


if __name__ == "__main__":
    *options, its_name, its_version = sys.argv[1:]
    print(json.dumps(bill(its_name, its_version, of_system=options == ["--system"]), indent=1, ensure_ascii=False))
