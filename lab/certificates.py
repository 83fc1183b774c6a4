"""Certificates for tests, made by the command ``openssl``: an authority of our own and what it signs."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lab import needs

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Pair:
    certificate: Path
    key: Path

    def together(self) -> Path:
        """One file with both, as baresip wants it."""
        path = self.certificate.with_suffix(".both.pem")
        path.write_text(self.certificate.read_text() + self.key.read_text())
        return path


@dataclass(frozen=True)
class Authority:
    folder: Path
    pair: Pair

    @classmethod
    def create(cls, folder: Path, name: str = "Test CA") -> Self:
        folder.mkdir(parents=True, exist_ok=True)
        pair = Pair(folder / "ca.pem", folder / "ca.key")
        _openssl(
            "req", "-x509", *CURVE, "-nodes", "-keyout", pair.key, "-out", pair.certificate, "-subj", f"/CN={name}"
        )
        return cls(folder, pair)

    @property
    def certificate(self) -> Path:
        """The CA's own, for those who are to believe it."""
        return self.pair.certificate

    def issue(
        self, name: str, *, san: str = "IP:127.0.0.1", days: int = 365, password: str = "", purpose: str = ""
    ) -> Pair:
        """Sign a new pair. ``days`` below zero: it has expired. ``purpose``: extendedKeyUsage."""
        pair = Pair(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={san}\n" + (f"extendedKeyUsage={purpose}\n" if purpose else ""))
        locked = ("-passout", f"pass:{password}") if password else ("-nodes",)
        _openssl("req", "-new", *CURVE, *locked, "-keyout", pair.key, "-out", request, "-subj", f"/CN={name}")
        signer = ("-CA", self.pair.certificate, "-CAkey", self.pair.key, "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, *signer, "-days", str(days), "-out", pair.certificate)
        pair.key.chmod(0o600)
        return pair


def _openssl(*arguments: str | Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        needs.missing("peers", "openssl is not installed: apt-get install --no-install-recommends openssl")
    argv = [openssl, *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
