"""Which addresses of a redirection are tried (RFC 3261 §8.1.3.4). No pjsua2 here."""

from collections.abc import Callable, Sequence
from typing import Final

from cc_tts.ua.sip import uri as sip_uri

MAX_REDIRECTS: Final = 5
"""The most redirections of one call that are followed; unmeasured."""


class Redirects:
    """The redirections of one call to ``first``; ``may_follow`` says whether a URI may be tried at all."""

    def __init__(self, first: str, may_follow: Callable[[str], bool]) -> None:
        self._may_follow = may_follow
        self._tried = {first.lower()}
        self._named: dict[str, None] = {}  # a set that keeps the order

    def follow(self, target: str, contacts: Sequence[str]) -> bool:
        """Whether to try ``target``, the next one of PJSIP's; ``contacts`` are those of the response that has just come.

        PJSIP shows its target without port, parameters and headers, so that it may be any of those named with the same user
        and host that was not tried yet: all of these must be fit to be tried.
        """
        self._named |= dict.fromkeys(contacts)
        address = sip_uri.address_of(target)
        possible = [uri for uri in self._named if uri.lower() not in self._tried and sip_uri.address_of(uri) == address]
        if len(self._tried) > MAX_REDIRECTS or not possible or not all(map(self._may_follow, possible)):
            return False
        self._tried.add(possible[0].lower())
        return True
