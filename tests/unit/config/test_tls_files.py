"""The certificate, its key and the CAs: every fault is named before the server starts."""

import time
from pathlib import Path

import pytest

from cc_tts.config import tls as tls_files
from cc_tts.config.schema import TlsConfig
from cc_tts.errors import ConfigError
from lab.certificates import Authority, Pair

pytestmark = pytest.mark.unit

DAY_S = 86_400


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def good(authority: Authority) -> Pair:
    return authority.issue("good")


def tls(pair: Pair, *, ca_file: Path | str = "", password: str = "") -> TlsConfig:
    return TlsConfig(
        certificate_file=str(pair.certificate),
        private_key_file=str(pair.key),
        private_key_password=password,
        ca_file=str(ca_file),
    )


def check(config: TlsConfig, *, in_days: float = 0) -> list[str]:
    return tls_files.check(config, now_s=time.time() + in_days * DAY_S)


def fault(config: TlsConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        check(config)
    return caught.value.detail


def test_nothing_to_complain_of(authority: Authority, good: Pair) -> None:
    assert check(tls(good, ca_file=authority.certificate)) == []
    assert check(TlsConfig()) == []


def test_a_chain_and_a_password(authority: Authority) -> None:
    pair = authority.issue("locked", password="geheim")
    pair.certificate.write_text(pair.certificate.read_text() + authority.certificate.read_text())
    assert check(tls(pair, password="geheim")) == []


def test_a_wrong_or_missing_password_never_shows(authority: Authority) -> None:
    pair = authority.issue("locked-2", password="geheim")
    wrong = fault(tls(pair, password="verkehrt"))
    assert "is not its password" in wrong
    assert "geheim" not in wrong
    assert "verkehrt" not in wrong
    assert "CC_TTS_TLS__PRIVATE_KEY_PASSWORD" in fault(tls(pair))
    assert "geheim" not in repr(tls(pair, password="geheim"))


def test_files_that_are_not_there(good: Pair, tmp_path: Path) -> None:
    absent = tmp_path / "absent.pem"
    assert fault(tls(Pair(absent, good.key))) == f"tls.certificate_file: {absent}: no such file"
    assert fault(tls(Pair(good.certificate, absent))) == f"tls.private_key_file: {absent}: no such file"
    assert fault(tls(good, ca_file=absent)) == f"tls.ca_file: {absent}: no such file"
    assert "must be able to read it" in fault(tls(good, ca_file=tmp_path))


@pytest.mark.parametrize("content", [b"", b"hello\n", b"-----BEGIN CERTIFICATE-----\nAAAA\n", b"\xff\x00" * 100])
def test_files_that_are_something_else(good: Pair, tmp_path: Path, content: bytes) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(content)
    assert "holds no certificate in PEM form" in fault(tls(Pair(other, good.key)))
    assert "holds no private key in PEM form" in fault(tls(Pair(good.certificate, other)))
    assert "holds no certificate in PEM form" in fault(tls(good, ca_file=other))


def test_a_certificate_whose_middle_is_broken(good: Pair, tmp_path: Path) -> None:
    lines = good.certificate.read_text().splitlines()
    lines[2] = "A" * len(lines[2])
    broken = tmp_path / "broken.pem"
    broken.write_text("\n".join(lines) + "\n")
    assert str(broken) in fault(tls(Pair(broken, good.key)))


def test_the_key_of_another_certificate(authority: Authority, good: Pair) -> None:
    other = authority.issue("other")
    assert "is not the key of" in fault(tls(Pair(good.certificate, other.key)))


def test_an_expired_certificate_is_a_warning(authority: Authority) -> None:
    (warning,) = check(tls(authority.issue("expired", days=-1)))
    assert "has expired" in warning


def test_a_certificate_that_soon_expires(good: Pair) -> None:
    assert check(tls(good), in_days=330) == []
    (warning,) = check(tls(good), in_days=355.5)
    assert "expires in 9 days, on " in warning


@pytest.mark.parametrize("days", [-1, 365])
def test_when_a_certificate_expires(authority: Authority, days: int) -> None:
    ends_s = tls_files.expiry_s(tls(authority.issue("dated", days=days)))
    assert ends_s == pytest.approx(time.time() + days * 86_400, abs=2 * 86_400)


def test_without_a_usable_certificate_none_expires(authority: Authority, good: Pair, tmp_path: Path) -> None:
    other = authority.issue("stranger")
    assert tls_files.expiry_s(TlsConfig()) is None
    assert tls_files.expiry_s(tls(Pair(good.certificate, other.key))) is None
    assert tls_files.expiry_s(tls(Pair(tmp_path / "none.pem", good.key))) is None


def test_a_certificate_for_clients_only(authority: Authority) -> None:
    (warning,) = check(tls(authority.issue("client", purpose="clientAuth")))
    assert "peers that verify will refuse it" in warning


def test_a_key_that_everybody_can_read(authority: Authority) -> None:
    pair = authority.issue("open")
    pair.key.chmod(0o644)
    (warning,) = check(tls(pair))
    assert "chmod o-r" in warning


def test_whose_certificates_are_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "system.pem"
    monkeypatch.setattr(tls_files, "SYSTEM_CA_FILES", (str(tmp_path / "absent"), str(system)))
    assert tls_files.ca_file(TlsConfig(ca_file="ours.pem")) == "ours.pem"
    assert tls_files.ca_file(TlsConfig(verify_server=False)) == ""
    with pytest.raises(ConfigError, match=r"set tls\.ca_file"):
        tls_files.ca_file(TlsConfig())
    system.write_text("")
    assert tls_files.ca_file(TlsConfig()) == str(system)
