"""How routes must fit together, and to transfers, recordings, relays and prompts."""

from collections.abc import Iterator

from cc_tts.config.record import RouteRecordConfig
from cc_tts.config.schema import Config, RouteConfig
from cc_tts.config.sections.prompts import fault_of_url, is_url
from cc_tts.config.sections.relay import relay_url
from cc_tts.config.sip_uri import AllowedTargets, uri_fault
from cc_tts.config.webhooks import key_of
from cc_tts.egress.hosts import AllowedHosts, usable_url


def routes(config: Config) -> Iterator[str]:
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
        yield from _record(user, route, config)


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
    if usable_url(route.media_url, "ws", "wss", may_have_user=True) is None:
        yield f"routes.{user}.media_url is not a URL of a WebSocket, as in wss://app.example.com/calls"
    if route.answer != "now":
        yield f'routes.{user}.media_url: the call is answered when the application is connected, so leave answer = "now"'
    if route.then != "stay":
        yield f'routes.{user}.media_url: the application ends the call, so leave then = "stay"'


def _record(user: str, route: RouteConfig, config: Config) -> Iterator[str]:
    wanted = route.record
    if wanted and not config.record.dir:
        yield f"routes.{user}.record: nothing can be recorded as long as record.dir is empty; name a folder there"
    if isinstance(wanted, RouteRecordConfig) and wanted.channels == "dual" and wanted.tracks != "both":
        yield f'routes.{user}.record.tracks: one direction alone needs channels = "mono"'


def greetings(config: Config) -> Iterator[str]:
    """Yield the greetings that are files at URLs from which none may be fetched."""
    allowed = AllowedHosts(config.prompts.allowed_hosts)
    for user, route in config.routes.items():
        if is_url(route.greeting_prompt) and (fault := fault_of_url(route.greeting_prompt, allowed)):
            yield f"routes.{user}.greeting_prompt {fault}"


def relays(config: Config) -> Iterator[str]:
    for user, route in config.routes.items():
        if not route.relay:
            continue
        key = f"routes.{user}.relay"
        if relay_url(route.relay.url) is None:
            yield f"{key}.url is not a URL of a WebSocket without user and fragment, as in wss://app.example.com/relay"
        if route.relay.secret:
            try:
                key_of(route.relay.secret)
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
