"""What the doctor says of the certificate of SIP over TLS."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from cc_tts.config import load as configuration
from cc_tts.doctor import network
from cc_tts.doctor.finding import Finding, Subject
from tests.support.certificates import Authority, Pair

pytestmark = pytest.mark.unit


def findings(pair: Pair, *, max_calls: int = 2000) -> Sequence[Finding]:
    settings = (
        'sip.transports=["tls"]',
        f"tls.certificate_file={pair.certificate}",
        f"tls.private_key_file={pair.key}",
    )
    subject = Subject(configuration.load(overrides=settings), build_max_calls=max_calls)
    return list(network.check_tls(subject))


def test_the_certificate(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca")
    good = authority.issue("good")
    assert [finding.status for finding in findings(good)] == ["ok"]
    (expired,) = findings(authority.issue("expired", days=-1))
    assert (expired.status, expired.advice) == ("warn", "have it renewed")
    assert "has expired" in expired.detail
    (soon,) = findings(authority.issue("soon", days=10))
    assert (soon.status, soon.advice) == ("warn", "have it renewed")
    (missing,) = findings(Pair(good.certificate, tmp_path / "none"))
    assert (missing.status, "no such file" in missing.detail) == ("fail", True)


def test_the_wheel_is_not_for_tls(tmp_path: Path) -> None:
    pair = Authority.create(tmp_path / "ca").issue("good")
    wheel, certificate = findings(pair, max_calls=4)
    assert (wheel.status, certificate.status) == ("fail", "ok")
    assert wheel.advice.startswith("make pjsua2")


def test_nothing_is_said_where_nothing_is_configured() -> None:
    assert list(network.check_tls(Subject(configuration.load()))) == []
