"""Reads pjsua2's objects for a leg. Runs on: the SIP thread."""

import re
from collections.abc import Mapping
from typing import Any, Final

import pjsua2 as pj

from cc_tts.ua import messages
from cc_tts.ua.sip import message as sip_message

DTMF_IS_UPDATE: Final = 1
DTMF_IS_END: Final = 2
"""These are ``pjmedia_stream_dtmf_event_flags``, which pjsua2 does not wrap."""
_ENCRYPTED: Final = re.compile(r"^\s+SRTP status: Active", re.MULTILINE)


def audio_media(info: Any) -> Any | None:
    """Return the live audio among a call's m-lines, ``None`` if it has none; a rejected m-line may come before it."""
    for media in info.media:
        if media.type == pj.PJMEDIA_TYPE_AUDIO and media.status != pj.PJSUA_CALL_MEDIA_NONE:
            return media
    return None


def call_options() -> Any:
    """Return pjsua2's usual options for a call with audio only: pjproject 2.17 would offer real-time text as well."""
    param = pj.CallOpParam(True)  # noqa: FBT003 - SWIG takes no keywords
    if hasattr(param.opt, "textCount"):
        param.opt.textCount = 0
    return param


def add_headers(param: Any, headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        header = pj.SipHeader()
        header.hName, header.hValue = name, value
        param.txOption.headers.append(header)


def is_encrypted(call: Any) -> bool:
    """Whether the call's media is SRTP now. The m-line does not show it, since RTP/AVP with keys is encrypted as well. Only
    PJSIP's dump of a call has it, on a line of its own; the first line has the far side's display name.
    """
    return _ENCRYPTED.search(call.dump(True, "")) is not None  # noqa: FBT003 - SWIG takes no keywords


def response_options(code: int, server: str) -> Any:
    """Return the options of a response with this status; ``server`` is the header of that name."""
    param = call_options()
    param.statusCode = code
    add_headers(param, {"Server": server} if server else {})
    return param


def change_of_own(state: Any, sip_call_id: str, *methods: str) -> Any | None:
    """Return the ``TsxStateEvent`` of our own request in this event; ``None`` if it is about something else. PJSUA reports a
    request of a call that is over to the call that has its slot by then: ``sip_call_id`` tells them apart, once it is
    known.
    """
    if state.e.type != pj.PJSIP_EVENT_TSX_STATE:
        return None
    change = state.e.body.tsxState
    if change.tsx.role != pj.PJSIP_ROLE_UAC or change.tsx.method not in methods:
        return None
    request = sip_message.readable(change.tsx.lastTx.wholeMsg)
    is_of_other = sip_call_id and request and sip_message.header_value(request, "call-id") != sip_call_id
    return None if is_of_other else change


def received(state: Any) -> str:
    """Return the received message of the event; empty if there is none."""
    event = state.e
    if event.type == pj.PJSIP_EVENT_RX_MSG:
        return sip_message.readable(event.body.rxMsg.rdata.wholeMsg)
    if event.type == pj.PJSIP_EVENT_TSX_STATE and event.body.tsxState.type == pj.PJSIP_EVENT_RX_MSG:
        return sip_message.readable(event.body.tsxState.src.rdata.wholeMsg)
    return ""


def status_of(error: Any) -> int:
    """Return the SIP status inside a PJSIP error code (PJSIP_ERRNO_FROM_SIP_STATUS adds 170000), else 500."""
    code = int(getattr(error, "status", 0)) - 170_000
    return code if 300 <= code <= 699 else 500  # noqa: PLR2004 - final refusals


def incoming_call(leg: Any, message: str, source: str, *, trunk: str) -> messages.IncomingCall:
    """Return the report of an INVITE. ``message`` is its text, ``source`` its source address."""
    info = leg.getInfo()
    return messages.IncomingCall(
        call_id=leg.call_id,
        sip_call_id=sip_message.readable(info.callIdString),
        caller=sip_message.readable(info.remoteUri),
        callee=sip_message.readable(info.localUri),
        request_uri=sip_message.request_uri(message),
        source=source,
        headers=sip_message.extension_headers(message),
        contradicting=sip_message.contradicting_headers(message),
        transport=sip_message.via_transport(message),
        identity=sip_message.identity_headers(message),
        trunk=trunk,
    )
