"""How the API, tenants, MRCP and traces must fit together, and to the other sections."""

import ipaddress
import re
from collections.abc import Iterator

from cc_tts.config.schema import MAX_TENANTS, Config
from cc_tts.config.sip_uri import is_ip_address
from cc_tts.egress.hosts import usable_url
from cc_tts.errors import did_you_mean


def http(config: Config) -> Iterator[str]:
    host = config.http.host
    is_loopback = ipaddress.ip_address(host).is_loopback if is_ip_address(host) else host == "localhost"
    if not config.http.tokens and not is_loopback:
        yield (
            f"http.host is {host} but no token is configured: anybody there could make calls. "
            "Set http.tokens, or bind 127.0.0.1"
        )
    seen: dict[str, int] = {}
    for number, each in enumerate(config.http.tokens):
        if each.token in seen:
            yield f"http.tokens[{seen[each.token]}] and http.tokens[{number}] are the same token; leave one of them out"
        seen[each.token] = number


def tenants(config: Config) -> Iterator[str]:
    known = config.tenants
    if len(known) > MAX_TENANTS:
        yield f"there are {len(known)} tenants; {MAX_TENANTS} are possible"
    for name in known:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
            yield f"tenants: {name[:80]!r} is no name of a tenant; a name is 1 to 64 of A-Z a-z 0-9 . _ -"
    named = [("http.tokens", token.tenant) for token in config.http.tokens]
    named += [(f"routes.{user}.tenant", route.tenant) for user, route in config.routes.items()]
    named += [("mrcp.tenant", config.mrcp.tenant)]
    named += [(f"webhooks[{place}].tenant", each.tenant) for place, each in enumerate(config.webhooks.endpoints)]
    for key, name in named:
        if name and name not in known:
            yield f"{key} names the tenant {name[:80]!r}{did_you_mean(name, known)}; add [tenants.{name[:80]}]"


def mrcp(config: Config) -> Iterator[str]:
    mrcp, rtp, tls = config.mrcp, config.rtp, config.tls
    if not mrcp.enabled:
        return
    if not mrcp.transports:
        yield 'mrcp.transports is empty; use any of "udp", "tcp", "tls"'
    if not mrcp.rtp_ports:
        yield "mrcp.rtp_port_max must be above mrcp.rtp_port_min; a session needs an even port"
    elif mrcp.rtp_port_min <= rtp.port_max and rtp.port_min <= mrcp.rtp_port_max:
        yield "mrcp.rtp_port_min to mrcp.rtp_port_max must be other ports than rtp.port_min to rtp.port_max"
    taken = {"sip.port": config.sip.port, "sip.tls_port": config.sip.tls_port, "http.port": config.http.port}
    for name in ("sip_port", "sip_tls_port", "control_port", "control_tls_port"):
        key, port = f"mrcp.{name}", getattr(mrcp, name)
        if port and (other := next((each for each, value in taken.items() if value == port), "")):
            yield f"{key} and {other} are both {port}; set {key} to a port of its own"
        taken[key] = port
    if "tls" in mrcp.transports and not (tls.certificate_file and tls.private_key_file):
        yield 'mrcp.transports has "tls": set tls.certificate_file and tls.private_key_file'


def tracing(config: Config) -> Iterator[str]:
    endpoint = config.tracing.endpoint
    if endpoint and ((url := usable_url(endpoint, "http", "https")) is None or url.raw_query_string):
        yield 'tracing.endpoint: write the base URL of a collector that takes OTLP over HTTP, as in "http://otel:4318"'
