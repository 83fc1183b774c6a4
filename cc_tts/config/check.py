"""Checks configuration values that must be consistent with each other. The schema checks each value alone."""

import ipaddress
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from cc_tts.config import cluster, remote, webhooks
from cc_tts.config.record import route_faults
from cc_tts.config.schema import MAX_TENANTS, Config, RouteConfig
from cc_tts.config.sections import asterisk, by_model, mrcp, prompts, quality, relay, tracing, trunks
from cc_tts.config.sections.hep import hep_address
from cc_tts.config.sip_uri import MAX_PORT, AllowedTargets, is_ip_address, uri_fault
from cc_tts.egress.hosts import host_faults
from cc_tts.errors import ConfigError, did_you_mean


def check_sense(config: Config) -> None:
    """Raise ``ConfigError`` for values that contradict each other; the message names both keys."""
    for faults_of in (
        _lists, _sip, _ua, _tls, _rtp, _tts, _playout, _media, _http, _routes, _registration, _peers, _auth, remote.faults,
        cluster.faults, _tenants, webhooks.faults, _prompts, _trunks, _relay, _mrcp, _asterisk,
        _tracing,
    ):  # fmt: skip
        for fault in faults_of(config):
            raise ConfigError(fault)


def _lists(config: Config) -> Iterator[str]:
    choices = {
        "sip.transports": (config.sip.transports, '"udp", "tcp", "tls"'),
        "rtp.codecs": (config.rtp.codecs, '"PCMU", "PCMA", "G722", "L16"'),
        "tts.devices": (config.tts.devices or config.tts.workers, '"auto", "cuda:0", "cpu"'),
        "auth.algorithms": (config.auth.algorithms, '"SHA-256", "MD5"'),
    }
    yield from (f"{key} is empty; use any of {known}" for key, (chosen, known) in choices.items() if not chosen)


def _sip(config: Config) -> Iterator[str]:
    sip = config.sip
    for key, host in (("sip.host", sip.host), ("sip.public_address", sip.public_address)):
        if host and (":" in host or not is_ip_address(host)):
            yield f"{key}: {host!r} is not an IPv4 address, and SIP and RTP are spoken over IPv4 only"
    for address in sip.nameservers:
        if not is_ip_address(address):
            yield f"sip.nameservers: {address!r} is not an IP address"
    hep_address(sip.hep)
    yield from quality.faults(config.quality, transports=sip.transports)


def _ua(config: Config) -> Iterator[str]:
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


def _rtp(config: Config) -> Iterator[str]:
    rtp = config.rtp
    if rtp.port_max - rtp.port_min < 1:
        yield "rtp.port_max must be above rtp.port_min; a call needs two ports"
    if set(rtp.codecs) == {"L16"}:
        yield 'rtp.codecs has "L16" alone, which is answered but not offered; add "PCMU", "PCMA" or "G722"'


def _tts(config: Config) -> Iterator[str]:
    yield from by_model.faults(config.tts)


def _playout(config: Config) -> Iterator[str]:
    playout = config.playout
    if playout.start_threshold_min_ms > playout.start_threshold_max_ms:
        yield "playout.start_threshold_min_ms is above playout.start_threshold_max_ms"
    if playout.start_threshold_max_ms > playout.window_ms:
        yield (
            "playout.start_threshold_max_ms is above playout.window_ms: a prompt that waits for so much audio would never "
            "start; raise playout.window_ms"
        )


def _media(config: Config) -> Iterator[str]:
    if config.media.start_threshold_ms > config.playout.window_ms:
        yield (
            "media.start_threshold_ms is above playout.window_ms: audio that waits for so much would never start; raise "
            "playout.window_ms"
        )


def _http(config: Config) -> Iterator[str]:
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


def _routes(config: Config) -> Iterator[str]:
    for user, route in config.routes.items():
        if route.unanswered_greeting and route.answer != "manual" and not (route.media_url or route.relay):
            yield (
                f'routes.{user}.unanswered_greeting is for answer = "manual" and for media_url; with "{route.answer}" every '
                "call is answered"
            )
        if route.media_url:
            yield from _media_url(user, route)
        yield from _transfer(user, route, config)
        if route.refer != "refuse" and not config.transfer.allowed:
            yield f'routes.{user}.refer is "{route.refer}", but transfer.allowed names nobody who may be called'
        if route.refer == "allow" and route.media_url:
            yield (
                f'routes.{user}.refer is "allow", but the application of media_url does not get the new call: use "ask"'
            )
        yield from route_faults(user, route.record, config.record)


def _transfer(user: str, route: RouteConfig, config: Config) -> Iterator[str]:
    key, target = f"routes.{user}.transfer_to", route.transfer_to
    if route.then == "transfer" and not target:
        yield f'routes.{user}.then is "transfer": name the SIP URI in {key}'
    elif target and route.then != "transfer":
        yield f'{key} goes with then = "transfer"'
    elif target and (fault := uri_fault(target)):
        yield f"{key}: {fault}"
    elif target and target not in AllowedTargets(config.transfer.allowed):
        yield f"{key} is {target}, which no pattern of transfer.allowed takes: calls of this route would be refused"
    elif target and route.answer == "manual":
        yield f'routes.{user}.then is "transfer", but with answer = "manual" the application transfers the call'


def _media_url(user: str, route: RouteConfig) -> Iterator[str]:
    try:
        url = urlsplit(route.media_url)
        is_usable = url.scheme in ("ws", "wss") and bool(url.hostname) and not url.fragment and url.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not re.fullmatch("[!-~]+", route.media_url):
        yield f"routes.{user}.media_url is not a URL of a WebSocket, as in wss://app.example.com/calls"
    if route.answer != "now":
        yield f'routes.{user}.media_url: the call is answered when the application is connected, so leave answer = "now"'
    if route.then != "stay":
        yield f'routes.{user}.media_url: the application ends the call, so leave then = "stay"'


def _tenants(config: Config) -> Iterator[str]:
    known = config.tenants
    if len(known) > MAX_TENANTS:
        yield f"there are {len(known)} tenants; {MAX_TENANTS} are possible"
    for name in known:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
            yield f"tenants: {name[:80]!r} is no name of a tenant; a name is 1 to 64 of A-Z a-z 0-9 . _ -"
    named = [("http.tokens", token.tenant) for token in config.http.tokens]
    named += [(f"routes.{user}.tenant", route.tenant) for user, route in config.routes.items()]
    named += [(f"webhooks[{place}].tenant", each.tenant) for place, each in enumerate(config.webhooks.endpoints)]
    for key, name in named:
        if name and name not in known:
            yield f"{key} names the tenant {name[:80]!r}{did_you_mean(name, known)}; add [tenants.{name[:80]}]"


def _prompts(config: Config) -> Iterator[str]:
    greetings = ((f"routes.{user}.greeting_prompt", route.greeting_prompt) for user, route in config.routes.items())
    yield from prompts.faults(config.prompts, greetings)


def _trunks(config: Config) -> Iterator[str]:
    yield from trunks.faults(
        config.trunks,
        tenants=config.tenants,
        transports=config.sip.transports,
        codecs=config.rtp.codecs,
        routes=config.routes,
    )


def _relay(config: Config) -> Iterator[str]:
    yield from relay.faults(config.relay)
    for user, route in config.routes.items():
        if not route.relay:
            continue
        key = f"routes.{user}.relay"
        yield from relay.route_faults(user, route.relay)
        if route.relay.secret:
            try:
                webhooks.key_of(route.relay.secret)
            except ValueError as error:
                yield f"{key}.secret: {error}"
        if route.media_url:
            yield f"{key} and media_url: one application takes the call, so leave one of them out"
        if route.answer != "now":
            yield f'{key}: the call is answered when the application is connected, so leave answer = "now"'
        if route.then != "stay":
            yield f'{key}: what follows the relay is in {key}.then, so leave then = "stay"'
        if route.unanswered_greeting:
            yield f"routes.{user}.unanswered_greeting: with a relay it is {key}.fallback"


def _mrcp(config: Config) -> Iterator[str]:
    calls = range(config.rtp.port_min, config.rtp.port_max + 1)
    has_certificate = bool(config.tls.certificate_file and config.tls.private_key_file)
    others = {"sip.port": config.sip.port, "sip.tls_port": config.sip.tls_port, "http.port": config.http.port}
    yield from mrcp.faults(
        config.mrcp,
        rtp_ports=calls,
        other_ports=others,
        tenants=config.tenants,
        has_certificate=has_certificate,
    )


def _registration(config: Config) -> Iterator[str]:
    if config.registration.registrar and not config.registration.username:
        yield "registration.registrar is set but registration.username is empty"


def _tls(config: Config) -> Iterator[str]:
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


def _peers(config: Config) -> Iterator[str]:
    sip, auth = config.sip, config.auth
    named = {
        "sip.trusted_peers": sip.trusted_peers,
        "sip.allowed_peers": sip.allowed_peers,
        "asterisk.allowed_peers": config.asterisk.allowed_peers,
        "auth.exempt_peers": auth.exempt_peers,
        "record.upload_networks": config.record.upload_networks,
    }
    for key, peer in ((key, peer) for key, peers in named.items() for peer in peers):
        try:
            ipaddress.ip_network(peer)
        except ValueError as error:
            yield f"{key}: {error}; write an address or a network such as 10.0.0.0/8"
    yield from host_faults("record.upload_hosts", config.record.upload_hosts)


def _asterisk(config: Config) -> Iterator[str]:
    yield from asterisk.faults(config.asterisk)


def _tracing(config: Config) -> Iterator[str]:
    yield from tracing.faults(config.tracing)


def _auth(config: Config) -> Iterator[str]:
    names = [user.username for user in config.auth.users]
    if len(set(names)) < len(names):
        yield "auth.users names a user twice"
