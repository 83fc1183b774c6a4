"""Answers what must not become a call, in front of pjsua, which offers no callback to change its own answers.

That is OPTIONS (RFC 3261 §11.2), INVITE over the limit (503, §21.5.4), methods that are not served outside a dialog (405,
481 or 489, §8.2.1, §12.2.2), and what :mod:`cc_tts.ua.guard.policy` refuses. The way of PJSIP is a module before pjsua's:

* The *transport filter* sees every request, before the dialogs do.
* The *request filter* sits just before the application layer: it sees no retransmissions and no requests inside a dialog.
* The *response filter*, where we have a password of our own, sees responses: a caller could challenge our BYE, and PJSIP
  would answer with a digest of that password, which can be attacked offline.
"""

import functools
from collections.abc import Callable
from typing import Final

from cc_tts import logs
from cc_tts.ua.guard.c_library import CLibrary, Headers
from cc_tts.ua.guard.policy import InboundPolicy, Refusal
from cc_tts.ua.sip import message as sip_message

_RESPONSE_PRIORITY: Final = 12
"""Before PJSIP_MOD_PRIORITY_TSX_LAYER (16), which passes responses to their transactions."""
_TRANSPORT_PRIORITY: Final = 30
"""This is after PJSIP_MOD_PRIORITY_TSX_LAYER (16), which takes retransmissions, before that of dialogs (32)."""
_REQUEST_PRIORITY: Final = 62
"""This is before PJSIP_MOD_PRIORITY_APPLICATION (64) and the modules just under it, after the dialogs' usages (48)."""
METHODS: Final = ("INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "INFO", "PRACK", "UPDATE", "NOTIFY")
ALLOWED: Final = ", ".join(METHODS)
"""The value of Allow, without REFER, which only some routes accept."""
_STRAY: Final = ("BYE", "CANCEL", "INFO", "PRACK", "UPDATE", "NOTIFY")
"""The methods that need a dialog: without one they get 481 (RFC 3261 §12.2.2)."""
EXTENSIONS: Final = ("100rel", "timer")

log = logs.get(__name__)


def _capabilities(*, takes_refer: bool) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Return the headers of a 200 to OPTIONS (RFC 3261 §11.2): PJSIP's number of each (``pjsip_hdr_e``), and its tokens."""
    methods = (*METHODS, "REFER") if takes_refer else METHODS
    return {"Allow": (4, methods), "Accept": (0, ("application/sdp",)), "Supported": (36, EXTENSIONS)}


class RequestFilter:
    """The modules in front of pjsua. ``refusal`` is called for each new INVITE and OPTIONS that may be taken: seconds for
    Retry-After, or ``None`` to let it pass. ``is_ours``: whether we placed the call of a Call-ID. ``on_refer`` gets Call-ID,
    the far side's tag and the text of a REFER in a dialog, and returns the answer; ``takes_refer``: some are accepted. Runs
    on: the SIP thread.
    """

    def __init__(
        self,
        library: CLibrary,
        *,
        policy: InboundPolicy,
        refusal: Callable[[], int | None],
        on_refused: Callable[[], None],
        is_ours: Callable[[str], bool],
        on_refer: Callable[[str, str, str], tuple[int, Headers]],
        takes_refer: bool = False,
    ) -> None:
        self._c = library
        self._policy = policy
        self._refusal = refusal
        self._on_refused = on_refused
        self._is_ours = is_ours
        self._on_refer = on_refer
        self._capabilities = _capabilities(takes_refer=takes_refer)

    def install(self) -> None:
        """Register with PJSIP, which keeps the modules. Raises ``RuntimeError`` if it refuses one."""
        self._set_capabilities()
        register, guarded = self._c.register_module, self._guarded
        register(b"mod-cc-tts-transport-filter", _TRANSPORT_PRIORITY, on_request=guarded(self._filter_transport))
        register(b"mod-cc-tts-request-filter", _REQUEST_PRIORITY, on_request=guarded(self._filter_request))
        if self._policy.has_password:
            register(b"mod-cc-tts-response-filter", _RESPONSE_PRIORITY, on_response=self._filter_response)

    def reload(self, *, takes_refer: bool) -> None:
        self._capabilities = _capabilities(takes_refer=takes_refer)
        self._set_capabilities()

    def _set_capabilities(self) -> None:
        """Make PJSIP's own messages list the same capabilities as ours."""
        for name, (kind, tokens) in self._capabilities.items():
            try:
                self._c.set_capability(kind, name, tokens)
            except RuntimeError as error:
                log.warning("capability_not_set", detail=str(error), consequence="answers name what is not served")

    def _guarded(self, step: Callable[[int, str], bool]) -> Callable[[int], bool]:
        """Return ``step`` as a function for PJSIP. A request for which it fails passes only if the policy refuses no
        callers.
        """

        def on_request(rdata: int) -> bool:
            try:
                method = self._c.method_of(rdata)
                return method != "ACK" and step(rdata, method)  # nothing answers an ACK (RFC 3261 §17)
            except Exception:
                log.exception("request_filter_failed")
                return self._policy.is_closed

        return on_request

    def _filter_transport(self, rdata: int, method: str) -> bool:
        """Tell PJSIP whether the request needs no further processing."""
        host, message = self._c.message(rdata)
        dialog = sip_message.dialog_of(message)

        @functools.cache
        def in_dialog() -> bool:
            return dialog is not None and self._c.has_dialog(*dialog)

        refusal = self._policy.on_request(method, host, message, in_dialog=in_dialog)
        if refusal is not None:
            return self._refuse(rdata, refusal)
        if dialog is None or (method != "OPTIONS" and method in METHODS):
            return False
        self._answer_in_dialog(rdata, method, message, is_known=in_dialog())
        return True

    def _answer_in_dialog(self, rdata: int, method: str, message: str, *, is_known: bool) -> None:
        if not is_known:
            self._c.respond(rdata, 481)  # PJSIP takes a call whose far side has no tag yet for any dialog
        elif method == "OPTIONS":
            self._answer_options(rdata, message)  # as outside a dialog (RFC 3261 §11); PJSIP would answer 500
        elif method == "REFER":
            call_id, tag = sip_message.header_value(message, "call-id"), sip_message.from_tag(message)
            self._c.respond(rdata, *self._on_refer(call_id, tag, message))
        else:
            self._refuse_method(rdata, method)

    def _filter_request(self, rdata: int, method: str) -> bool:
        """Tell PJSIP whether the request, which belongs to no dialog, needs no further processing."""
        if method in _STRAY:
            self._c.respond(rdata, 481)
        elif method not in ("INVITE", "OPTIONS"):
            self._refuse_method(rdata, method)
        elif method == "INVITE" and (refusal := self._policy.on_invite(*self._c.message(rdata))) is not None:
            self._refuse(rdata, refusal)
        elif (retry_after_s := self._refusal()) is not None:
            self._c.respond(rdata, 503, (("Retry-After", str(retry_after_s)),))
            if method == "INVITE":
                self._on_refused()
        elif method == "OPTIONS":
            self._answer_options(rdata, self._c.message(rdata)[1])
        else:
            return False
        return True

    def _refuse(self, rdata: int, refusal: Refusal) -> bool:
        if refusal.code:
            self._c.respond(rdata, refusal.code, refusal.headers, reason=refusal.reason)
        return True

    def _refuse_method(self, rdata: int, method: str) -> None:
        if method == "SUBSCRIBE":
            self._c.respond(rdata, 489)  # Bad Event (RFC 6665 §4.2.1): no event package is served
        else:
            self._c.respond(rdata, 405, (("Allow", ", ".join(self._capabilities["Allow"][1])),))

    def _answer_options(self, rdata: int, message: str) -> None:
        """Answer OPTIONS: 200, or 420 if it requires an extension that we lack (RFC 3261 §8.2.2.3)."""
        unknown = [tag for tag in sip_message.required_extensions(message) if tag not in EXTENSIONS]
        if unknown:
            tags = sip_message.option_tags(unknown)
            self._c.respond(rdata, 420, (("Unsupported", tags),) if tags else ())
        else:
            self._c.respond(rdata, 200, [(name, ", ".join(tokens)) for name, (_, tokens) in self._capabilities.items()])

    def _filter_response(self, rdata: int) -> bool:
        """Drop challenges that our password must not answer; the request then times out."""
        try:
            if self._c.method_of(rdata) not in ("401", "407", ""):
                return False
            return self._policy.is_unsolicited_challenge(*self._c.message(rdata), is_ours=self._is_ours)
        except Exception:
            log.exception("request_filter_failed")
            return True
