"""The SIP server: receives requests, keeps dialogs, and sends BYE (RFC 3261 §12, §13.3, §15).

::

    flow ─▸ receive ─▸ transaction known? ─▸ INVITE · ACK · BYE · CANCEL · OPTIONS ─▸ Dialog ─▸ Sessions

Runs on: the event loop.
"""

import asyncio
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cc_tts import logs
from cc_tts.config.schema import SipConfig
from cc_tts.config.sip_uri import MAX_PORT
from cc_tts.mrcp.sip import request as requests
from cc_tts.mrcp.sip.flows import Flow, StreamFlow
from cc_tts.mrcp.sip.request import ALLOW, DEFAULT_PORT, SipRefusal, SipRequest, new_tag, written
from cc_tts.mrcp.sip.transactions import Repeater, Transactions
from cc_tts.mrcp.tcp import Address
from cc_tts.ua.sip import message

MAX_BYES: Final = 2000
"""The most BYEs of ours that wait for an answer (unmeasured)."""
_IP_AND_PORT: Final = re.compile(
    r"sips?:(?:[^@<>\s]{0,128}@)?(\d{1,3}(?:\.\d{1,3}){3})(?::(\d{1,5}))?(?=[;?>]|$)", re.ASCII
)

log = logs.get(__name__)


@dataclass(slots=True, eq=False)
class Dialog:
    """A dialog that a client has started. Its user (a usage in RFC 5057) sets ``modify``, which applies another offer and
    returns the answer or raises :class:`SipRefusal`, and ``ended``, which is called when the dialog is over.
    """

    call_id: str
    tag: str
    remote: str
    """The From of its INVITE, which is To in our requests."""
    local: str
    flow: Flow
    target: str
    routes: tuple[str, ...]
    cseq: int
    hang_up: Callable[[str], None] = lambda _reason: None
    """Sends BYE, for this reason."""
    modify: Callable[[str], str] = lambda _offer: ""
    ended: Callable[[str], None] = lambda _reason: None
    description: str = ""
    """Our last description, with which we answer a request without an offer: a session border controller only checks whether
    the session is alive.
    """
    own_cseq: int = 0
    accepted_cseq: int = 0
    """The CSeq of the last answered INVITE, and of its ACK."""
    repeater: Repeater | None = None
    """Repeats our 200 until the ACK arrives (RFC 3261 §13.3.1.4)."""

    @property
    def key(self) -> tuple[str, str]:
        return self.call_id, self.tag


class SipServer:
    """Serves dialogs. ``begin`` gets an offer and its dialog, and returns the answer, or raises ``Refusal``.
    ``capabilities`` returns the description for OPTIONS from an address.
    """

    def __init__(
        self,
        config: SipConfig,
        *,
        begin: Callable[[str, Dialog], str],
        capabilities: Callable[[str], str],
        contact: Callable[[Flow], str],
    ) -> None:
        self._config = config
        self._begin = begin
        self._capabilities = capabilities
        self._contact = contact
        self._transactions = Transactions()
        self._dialogs: dict[tuple[str, str], Dialog] = {}
        self._byes: dict[str, Repeater] = {}

    @property
    def num_dialogs(self) -> int:
        return len(self._dialogs)

    def receive(self, text: str, flow: Flow) -> None:
        if text.startswith("SIP/2.0 "):
            self._take_response(text)
            return
        request = requests.read(text, flow)
        if request is None:
            return
        if request.method == "ACK":
            self._ack(request)
            return
        has_room = request.method == "BYE" or not self._transactions.is_full  # what ends a dialog always passes
        if not self._transactions.repeats(request) and has_room:
            self._serve(request)

    def _serve(self, request: SipRequest) -> None:
        try:
            self._handler(request)(request)
        except SipRefusal as refusal:
            self._refuse(request, refusal)
        except Exception:
            log.exception("sip_request_failed", method=request.method)
            self._refuse(request, SipRefusal(500))

    def _handler(self, request: SipRequest) -> Callable[[SipRequest], None]:
        """Return the handler of a request. Raises ``Refusal`` if it is malformed or not supported."""
        handlers = {"INVITE": self._invite, "BYE": self._bye, "CANCEL": self._cancel, "OPTIONS": self._options}
        if request.fault:
            raise SipRefusal(400, request.fault)
        if request.method not in handlers:
            raise SipRefusal(405, headers=[("Allow", ALLOW)])
        if request.method != "CANCEL" and (unknown := message.required_extensions(request.text)):
            raise SipRefusal(420, headers=[("Unsupported", message.option_tags(unknown))])
        return handlers[request.method]

    def _refuse(self, request: SipRequest, refusal: SipRefusal) -> None:
        reason = "".join(each for each in refusal.reason if each.isprintable())
        self._answer(request, refusal.status, reason=reason, headers=refusal.headers)

    def _answer(
        self,
        request: SipRequest,
        status: int,
        *,
        reason: str = "",
        headers: Sequence[tuple[str, str]] = (),
        body: str = "",
    ) -> None:
        server = [("Server", self._config.user_agent)] if self._config.user_agent else []
        response = request.response(status, reason=reason, tag=new_tag(), headers=[*headers, *server], body=body)
        self._transactions.answer(request, response)

    # --- INVITE ------------------------------------------------------------------------------------------------------------

    def _invite(self, request: SipRequest) -> None:
        kind = request.header("content-type").partition(";")[0].strip().lower()
        if request.body and kind != "application/sdp":
            raise SipRefusal(415, headers=[("Accept", "application/sdp")])
        if request.dialog_key is not None:
            self._modify(request)
            return
        if not request.body:
            raise SipRefusal(488, "An offer is needed")
        if not message.from_tag(request.text):
            raise SipRefusal(400, "From has no tag")
        dialog = self._new_dialog(request)
        answer = self._begin(request.body, dialog)
        self._dialogs[dialog.key] = dialog
        _hold(request.flow, 1)
        self._accept(request, dialog, answer)

    def _new_dialog(self, request: SipRequest) -> Dialog:
        target = next(iter(message.contacts(request.text)), "")
        if not target:
            raise SipRefusal(400, "Contact is missing")
        tag = new_tag()
        dialog = Dialog(
            call_id=request.call_id,
            tag=tag,
            remote=request.header("from"),
            local=f"{request.header('to')};tag={tag}",
            flow=request.flow,
            target=target,
            routes=tuple(message.header_values(request.text, "record-route"))[: message.MAX_HEADERS],
            cseq=request.cseq,
        )
        dialog.hang_up = functools.partial(self._hang_up, dialog)
        return dialog

    def _modify(self, request: SipRequest) -> None:
        dialog = self._dialog_of(request)
        if dialog.repeater is not None:
            raise SipRefusal(491)
        answer = dialog.modify(request.body) if request.body else dialog.description
        dialog.target = next(iter(message.contacts(request.text)), dialog.target)
        self._accept(request, dialog, answer)

    def _accept(self, request: SipRequest, dialog: Dialog, answer: str) -> None:
        headers = [
            *(("Record-Route", each) for each in message.header_values(request.text, "record-route")),
            ("Contact", self._contact(request.flow)),
            ("Allow", ALLOW),
            ("Server", self._config.user_agent or "cc-tts"),
        ]
        dialog.description = answer
        response = request.response(200, tag=dialog.tag, headers=headers, body=answer)
        self._transactions.answer(request, response)
        dialog.accepted_cseq = request.cseq
        dialog.repeater = Repeater(lambda: request.reply(response), lambda: self._unacknowledged(dialog))

    def _unacknowledged(self, dialog: Dialog) -> None:
        dialog.repeater = None
        dialog.hang_up("no_ack")

    def _ack(self, request: SipRequest) -> None:
        self._transactions.acknowledge(request)
        dialog = self._dialogs.get(request.dialog_key or ("", ""))
        if dialog is not None and dialog.repeater is not None and request.cseq == dialog.accepted_cseq:
            dialog.repeater.stop()
            dialog.repeater = None

    def _cancel(self, request: SipRequest) -> None:
        """Answer a CANCEL, which has no effect since the INVITE already has its answer (RFC 3261 §9.2)."""
        if not self._transactions.has_invite(request):
            raise SipRefusal(481)
        self._answer(request, 200)

    def _options(self, request: SipRequest) -> None:
        if request.dialog_key is not None:
            self._dialog_of(request)
        headers = [("Allow", ALLOW), ("Accept", "application/sdp"), ("Contact", self._contact(request.flow))]
        self._answer(request, 200, headers=headers, body=self._capabilities(request.flow.local_host))

    def _bye(self, request: SipRequest) -> None:
        dialog = self._dialog_of(request)
        self._answer(request, 200)
        self._end(dialog, "hangup")

    def _dialog_of(self, request: SipRequest) -> Dialog:
        """Return the dialog of a request, which must be newer than the last one in it (RFC 3261 §12.2.2)."""
        dialog = self._dialogs.get(request.dialog_key or ("", ""))
        if dialog is None or message.from_tag(request.text) != message.from_tag(f"\r\nFrom: {dialog.remote}\r\n\r\n"):
            raise SipRefusal(481)
        if request.cseq <= dialog.cseq:
            raise SipRefusal(500, "CSeq is lower than that of the last request")
        dialog.cseq = request.cseq
        if request.flow is not dialog.flow:  # the client may use another connection or transport from now on
            _hold(dialog.flow, -1)
            _hold(request.flow, 1)
            dialog.flow = request.flow
        return dialog

    def _end(self, dialog: Dialog, reason: str) -> None:
        if self._dialogs.pop(dialog.key, None) is None:
            return
        if dialog.repeater is not None:
            dialog.repeater.stop()
            dialog.repeater = None
        _hold(dialog.flow, -1)
        dialog.ended(reason)

    # --- our BYE -----------------------------------------------------------------------------------------------------------

    def _hang_up(self, dialog: Dialog, reason: str) -> None:
        if dialog.key not in self._dialogs:
            return
        self._send_bye(dialog)
        self._end(dialog, reason)

    def _send_bye(self, dialog: Dialog) -> None:
        if len(self._byes) >= MAX_BYES:
            return
        branch = f"z9hG4bK{new_tag()}"
        dialog.own_cseq += 1
        host, port = dialog.flow.local_host, self._contact(dialog.flow).rpartition(":")[2].partition(";")[0].strip(">")
        data = written(
            [
                f"BYE {dialog.target} SIP/2.0",
                f"Via: SIP/2.0/{dialog.flow.transport} {host}:{port};branch={branch};rport",
                "Max-Forwards: 70",
                *(f"Route: {each}" for each in dialog.routes),
                f"From: {dialog.local}",
                f"To: {dialog.remote}",
                f"Call-ID: {dialog.call_id}",
                f"CSeq: {dialog.own_cseq} BYE",
            ]
        )
        to = _next_hop(dialog)

        def send() -> None:
            dialog.flow.send(data, to)

        send()
        self._byes[branch] = Repeater(send, lambda: self._bye_over(branch), repeats=not dialog.flow.is_reliable)

    def _take_response(self, text: str) -> None:
        via = next(iter(message.header_values(text, "via", "v")), "")
        branch = re.search(r";\s*branch=([^;,\s]+)", via)
        if branch is not None and not text.startswith("SIP/2.0 1"):
            self._bye_over(branch[1])

    def _bye_over(self, branch: str) -> None:
        if (repeater := self._byes.pop(branch, None)) is not None:
            repeater.stop()

    async def close(self, timeout_s: float) -> None:
        """End every dialog, and wait a while for the answers."""
        for dialog in list(self._dialogs.values()):
            dialog.hang_up("shutdown")
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        while self._byes and asyncio.get_running_loop().time() < deadline_s:  # noqa: ASYNC110 - they come one by one
            await asyncio.sleep(0.02)
        for branch in list(self._byes):
            self._bye_over(branch)
        self._transactions.close()


def _hold(flow: Flow, by: int) -> None:
    if isinstance(flow, StreamFlow):
        flow.num_sessions += by


def _next_hop(dialog: Dialog) -> Address:
    """Return where a request of ours goes over UDP: to the first proxy of the route, else to Contact. Names are not looked
    up; the address of the client is used instead.
    """
    wanted = dialog.routes[0] if dialog.routes else dialog.target
    match = _IP_AND_PORT.search(wanted)
    if match is None:
        return dialog.flow.peer
    port = int(match[2] or DEFAULT_PORT)
    return (match[1], port) if 0 < port <= MAX_PORT else dialog.flow.peer
