"""Makes a wheel of a server build of pjsua2 (``sip/pjproject/build.sh``) for the Python that runs this.

``python pjsua2_wheel.py BUILD VERSION FOLDER``. Installed beside cc-tts in a virtual environment it is where
``cc-tts pjsua2 build`` puts its result. It is linked with the libraries of the system that it was made on, which keep them
up to date: it is no wheel for other systems, and its tag says so.
"""

import base64
import hashlib
import os
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

NAME = "cc_tts_pjsua2"
METADATA = """\
Metadata-Version: 2.4
Name: cc-tts-pjsua2
Version: {version}
Summary: The server build of pjsua2, which cc-tts loads for more calls than the wheel of PyPI takes
License-Expression: GPL-2.0-or-later
Requires-Python: =={python}.*
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: cc-tts\nRoot-Is-Purelib: false\nTag: {tag}\n"
FIRST_DATE_S = 315_532_800
"""A ZIP archive knows no time before 1980."""


def write(build: Path, version: str, folder: Path) -> Path:
    major, minor = sys.version_info[:2]
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"cp{major}{minor}-cp{major}{minor}-{platform}"
    info = f"{NAME}-{version}.dist-info"
    held = [path for path in sorted(build.iterdir()) if path.is_file()]
    files = {f"{NAME}-{version}.data/data/pjsua2-server/{path.name}": path.read_bytes() for path in held}
    files[f"{info}/METADATA"] = METADATA.format(version=version, python=f"{major}.{minor}").encode()
    files[f"{info}/WHEEL"] = WHEEL.format(tag=tag).encode()
    lines = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items()]
    files[f"{info}/RECORD"] = ("".join(lines) + f"{info}/RECORD,,\n").encode()
    target = folder / f"{NAME}-{version}-{tag}.whl"
    date = time.gmtime(max(FIRST_DATE_S, int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))[:6]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return target


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])).name)
