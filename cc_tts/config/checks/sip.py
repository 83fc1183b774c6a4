"""How SIP, RTP and the lines without SIP must fit together."""

import ipaddress
from collections.abc import Iterator

from cc_tts.config.schema import Config
from cc_tts.config.sections.hep import hep_address
from cc_tts.config.sections.quality import MAX_INTERVAL_S, MIN_INTERVAL_S
from cc_tts.config.sip_uri import MAX_PORT, is_ip_address, uri_fault
from cc_tts.egress.hosts import host_faults


def sip(config: Config) -> Iterator[str]:
    sip = config.sip
    for key, host in (("sip.host", sip.host), ("sip.public_address", sip.public_address)):
        if host and (":" in host or not is_ip_address(host)):
            yield f"{key}: {host!r} is not an IPv4 address, and SIP and RTP are spoken over IPv4 only"
    for address in sip.nameservers:
        if not is_ip_address(address):
            yield f"sip.nameservers: {address!r} is not an IP address"
    hep_address(sip.hep)


def quality(config: Config) -> Iterator[str]:
    quality = config.quality
    fault = uri_fault(quality.collector) if quality.collector else None
    if fault is not None:
        yield f"quality.collector: {fault}"
    if quality.collector.lower().startswith("sips:") and "tls" not in config.sip.transports:
        yield 'quality.collector is a sips: URI, but sip.transports has no "tls"'
    if 0 < quality.interval_s < MIN_INTERVAL_S:
        yield f"quality.interval_s is 0, or {MIN_INTERVAL_S} to {MAX_INTERVAL_S}"
    if quality.interval_s and not quality.collector:
        yield "quality.interval_s needs quality.collector, which gets the reports"


def ua(config: Config) -> Iterator[str]:
    num, ports, sip, rtp = config.ua.processes, config.ua.own_ports, config.sip, config.rtp
    if num == 1:
        return
    if sip.transports != ("udp",):
        yield (
            f'ua.processes is {num}: calls are spread over UDP only, so set sip.transports = ["udp"], or ua.processes = 1'
        )
    if sip.port == 0 or ports[0] == 0 or ports[-1] > MAX_PORT or sip.port in ports:
        yield (
            f"ua.first_port: {num} processes need ports {ports[0]} to {ports[-1]}, between 1 and {MAX_PORT}, and sip.port "
            f"({sip.port}) must be another one"
        )
    if 0 < sip.max_calls < num:
        yield f"sip.max_calls is {sip.max_calls}, fewer than the {num} of ua.processes"
    if rtp.num_pairs < num:
        yield f"rtp.port_min to rtp.port_max has ports for fewer calls than the {num} of ua.processes"


def tls(config: Config) -> Iterator[str]:
    sip, tls = config.sip, config.tls
    if "tls" in sip.transports:
        if "tcp" in sip.transports and sip.port == sip.tls_port != 0:
            yield f"sip.port and sip.tls_port are both {sip.port}, but TCP and TLS need a port each"
        if not (tls.certificate_file and tls.private_key_file):
            yield 'sip.transports has "tls": set tls.certificate_file and tls.private_key_file, or take "tls" out'
    if bool(tls.certificate_file) != bool(tls.private_key_file):
        yield "tls.certificate_file and tls.private_key_file are set together or not at all"
    if tls.verify_client and not tls.ca_file:
        yield "tls.verify_client is on but tls.ca_file is empty: name the CA whose clients are let in"


def rtp(config: Config) -> Iterator[str]:
    rtp = config.rtp
    if rtp.port_max - rtp.port_min < 1:
        yield "rtp.port_max must be above rtp.port_min; a call needs two ports"
    if set(rtp.codecs) == {"L16"}:
        yield 'rtp.codecs has "L16" alone, which is answered but not offered; add "PCMU", "PCMA" or "G722"'


def registration(config: Config) -> Iterator[str]:
    if config.registration.registrar and not config.registration.username:
        yield "registration.registrar is set but registration.username is empty"


def auth(config: Config) -> Iterator[str]:
    names = [user.username for user in config.auth.users]
    if len(set(names)) < len(names):
        yield "auth.users names a user twice"


def asterisk(config: Config) -> Iterator[str]:
    lines = config.asterisk
    if not is_ip_address(lines.host):
        yield f"asterisk.host: {lines.host!r} is not an IP address"
        return
    if lines.websocket_port and lines.websocket_port == lines.audiosocket_port:
        yield f"asterisk.websocket_port and asterisk.audiosocket_port are both {lines.websocket_port}"
    if lines.websocket_port and not ipaddress.ip_address(lines.host).is_loopback and not lines.password:
        yield f"asterisk.host is {lines.host} but asterisk.password is empty: anybody there could bring calls"
    if lines.username and not lines.password:
        yield "asterisk.username goes with asterisk.password"


def peers(config: Config) -> Iterator[str]:
    named = {
        "sip.trusted_peers": config.sip.trusted_peers,
        "sip.allowed_peers": config.sip.allowed_peers,
        "asterisk.allowed_peers": config.asterisk.allowed_peers,
        "auth.exempt_peers": config.auth.exempt_peers,
        "mrcp.allowed_peers": config.mrcp.allowed_peers,
        "record.upload_networks": config.record.upload_networks,
    }
    for key, peer in ((key, peer) for key, peers in named.items() for peer in peers):
        try:
            ipaddress.ip_network(peer)
        except ValueError as error:
            yield f"{key}: {error}; write an address or a network such as 10.0.0.0/8"


def hosts(config: Config) -> Iterator[str]:
    yield from host_faults("record.upload_hosts", config.record.upload_hosts)
    yield from host_faults("webhooks.allowed_hosts", config.webhooks.allowed_hosts)
    yield from host_faults("prompts.allowed_hosts", config.prompts.allowed_hosts)
    yield from host_faults("relay.allowed_hosts", config.relay.allowed_hosts)
