"""Begins transfers to targets that the configuration allows. Every command that transfers a call goes through here.

Runs on: the event loop.
"""

from dataclasses import replace
from typing import TypeVar

from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.transfers.transfer import AnyTransfer, ReferRequest, Transfer
from cc_tts.config.schema import Config
from cc_tts.config.sip_uri import AllowedTargets
from cc_tts.errors import TransferActive, TransferNotAllowed, WrongState
from cc_tts.ua.refer import message as refer

T = TypeVar("T", bound=AnyTransfer)


def check_target(to: str, config: Config) -> None:
    """Refuse a target that the configuration does not allow.

    Raises:
        TransferNotAllowed: the configuration does not name it.
    """
    if to not in AllowedTargets(config.transfer.allowed):
        raise TransferNotAllowed(
            "no pattern of transfer.allowed takes this target: add one to the configuration; the default is none"
        )


def begin(call: Call, request: ReferRequest) -> Transfer:
    """Transfer the far side of a call by REFER; ``call.transfer`` reports the progress.

    Raises:
        WrongState: the call is not established, unless it may be transferred once it is; or the far side of the consulted
            call is nobody who could take the place of ours.
        LineUnsupported: one of the calls came by a line without SIP.
        TransferNotAllowed: the configuration does not name the target.
        TransferActive: a transfer runs already.
        CcTtsError: as :meth:`.Call.speak`, of a prompt.
    """
    call.check_sip("REFER")
    if (consult := request.consult) is not None:
        consult.check_sip("REFER")
        if consult is call or consult.state is not CallState.ESTABLISHED:
            raise WrongState(f"call {consult.id} is {consult.state}: consult another call that is established")
        local_tag, remote_tag = consult.tags
        replaces = refer.replaces(consult.sip_call_id, local_tag=local_tag, remote_tag=remote_tag)
        headers = {"Replaces": replaces, **request.headers}
        request = replace(request, to=request.to or consult.remote_uri, headers=headers)
    check_target(request.to, call.services.config)
    if call.state is not CallState.ESTABLISHED and not (request.when_answered and call.waits_for_answer):
        raise WrongState(f"call {call.id} is {call.state}: transfer is not possible")
    before = call.transfer
    transfer = run(call, Transfer(call, request))
    if before is not None:
        call.followers.leave(before)  # a hold of it that is answered late is now this one's
    return transfer


def run(call: Call, transfer: T) -> T:
    """Begin a transfer. One runs on a call at a time.

    Raises:
        TransferActive: one runs already.
        CcTtsError: it cannot begin.
    """
    if (running := call.running_transfer) is not None:
        raise TransferActive(f"transfer {running.id} runs on call {call.id}")
    before, call.transfer = call.transfer, transfer
    try:
        transfer.begin()
    except BaseException:
        call.transfer = before
        raise
    return transfer
