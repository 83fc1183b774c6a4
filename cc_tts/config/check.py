"""Checks configuration values that must be consistent with each other. The schema checks each value alone."""

from cc_tts.config import cluster, remote, webhooks
from cc_tts.config.checks import calls, services, sip, speech, trunks
from cc_tts.config.schema import Config
from cc_tts.errors import ConfigError


def check_sense(config: Config) -> None:
    """Raise ``ConfigError`` for values that contradict each other; the message names both keys."""
    for faults_of in (
        speech.lists, sip.sip, sip.quality, sip.ua, sip.tls, sip.rtp, speech.models, speech.playout, speech.media,
        services.http, calls.routes, sip.registration, sip.peers, sip.hosts, sip.auth, remote.faults, cluster.faults,
        services.tenants, webhooks.faults, calls.greetings, trunks.trunks, calls.relays, services.mrcp, sip.asterisk,
        services.tracing,
    ):  # fmt: skip
        for fault in faults_of(config):
            raise ConfigError(fault)
