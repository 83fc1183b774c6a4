"""Where events go, and what is shown of it."""

import pytest

from cc_tts.config.schema import CallWebhook, WebhookConfig
from cc_tts.webhooks.target import WebhookTarget

pytestmark = pytest.mark.unit

SECRET = "whsec_" + "a2" * 20


def test_neither_the_path_nor_a_secret_is_shown() -> None:
    for target in (
        WebhookTarget.configured("crm", WebhookConfig(url="https://u:pw@app.example.com/t0ken?key=k3y", secret=SECRET)),
        WebhookTarget.chosen(CallWebhook(url="https://app.example.com/t0ken?key=k3y", secret=SECRET)),
    ):
        assert target.shown == "https://app.example.com"
        assert not any(text in repr(target) for text in ("t0ken", "k3y", "pw", SECRET, "a2a2"))


def test_an_endpoint_of_a_tenant_gets_its_events_alone() -> None:
    target = WebhookTarget.configured(
        "crm", WebhookConfig(url="http://x", secret=SECRET, tenant="acme", types=("call.early",))
    )
    assert target.wants("call.early", "acme")
    assert not target.wants("call.early", "other")
    assert not target.wants("call.early", "")
    assert not target.wants("call.held", "acme")
