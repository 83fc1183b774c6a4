"""The settings of relays: conversations of calls with applications that are written for ConversationRelay."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from cc_tts.config.wording import form
from cc_tts.egress.hosts import MAX_URL_CHARS, usable_url

if TYPE_CHECKING:
    from yarl import URL

MAX_PARAMETERS: Final = 32
"""Parameters of one relay; unmeasured."""

Interruptible = Literal["none", "dtmf", "speech", "any"]
"""Whether keys or speech of the caller interrupt a prompt."""
_Words = Annotated[str, Meta(max_length=5000)]
_Tag = Annotated[
    str,
    Meta(
        max_length=35,
        pattern=form(r"^([A-Za-z]{1,8}([-_][A-Za-z0-9]{1,8})*)?$(?!\n)", "a BCP 47 tag, such as en-GB or zh,"),
    ),
]
_Voice = Annotated[str, Meta(max_length=128)]
_Name = Annotated[str, Meta(min_length=1, max_length=64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayConfig:
    """``[relay]``: connections to applications of ConversationRelay. ``allowed_hosts`` are for those that clients name;
    the operator's own, in ``routes``, may be anywhere.
    """

    allowed_hosts: tuple[Annotated[str, Meta(min_length=1, max_length=255)], ...] = ()
    connect_timeout_s: Annotated[float, Meta(gt=0, le=60)] = 5.0
    silence_timeout_s: Annotated[float, Meta(ge=0, le=3600)] = 20.0
    reconnect_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 30.0


class RelaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One relay, in the terms of TwiML's ConversationRelay, from a route or from a client."""

    url: Annotated[
        str, Meta(min_length=1, max_length=MAX_URL_CHARS, description="ws:// or wss://, without user and password.")
    ]
    secret: Annotated[
        str, Meta(max_length=128, description="whsec_ and 24 to 64 bytes in base64: the handshake is signed with it.")
    ] = ""
    welcome_greeting: Annotated[_Words, Meta(description="Said once the application is connected.")] = ""
    welcome_greeting_interruptible: Interruptible = "dtmf"
    interruptible: Annotated[
        Interruptible,
        Meta(description="What interrupts the application's words. `any`: keys, and speech where that can be heard."),
    ] = "dtmf"
    voice: Annotated[_Voice, Meta(description="Empty: the call's.")] = ""
    language: Annotated[_Tag, Meta(description="Empty: the call's.")] = ""
    languages: Annotated[
        Mapping[_Tag, _Voice], Meta(max_length=MAX_PARAMETERS, description="Voices of other languages, by their tags.")
    ] = {}
    dtmf_detection: Annotated[bool, Meta(description="Whether the application gets the caller's keys.")] = True
    parameters: Annotated[
        Mapping[_Name, Annotated[str, Meta(max_length=512)]],
        Meta(max_length=MAX_PARAMETERS, description="For the application, in `customParameters` of `setup`."),
    ] = {}
    application_reconnect: Annotated[
        bool,
        Meta(description="A connection that is lost is made again, and what happened meanwhile is sent then."),
    ] = False
    fallback: Annotated[
        _Words, Meta(description="Said when the application cannot be reached, is lost, or says nothing.")
    ] = ""
    then: Annotated[
        Literal["hangup", "stay"], Meta(description="What follows the end of the relay, and the fallback.")
    ] = "hangup"

    @property
    def interrupting(self) -> tuple[Interruptible, Interruptible]:
        """Return what interrupts the greeting, and what interrupts the application's words."""
        return self.welcome_greeting_interruptible, self.interruptible

    def __repr__(self) -> str:
        """Show nothing, since URL, token and parameters may be secrets."""
        return "RelaySettings(...)"


RouteRelay = RelaySettings | Literal[""]
"""A relay, or empty if the calls of a route have none."""


def relay_url(text: str) -> "URL | None":
    """Return the URL of an application; ``None`` if it is unusable."""
    return usable_url(text, "ws", "wss")
