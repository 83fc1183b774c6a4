"""Which targets calls may be transferred to. Every command that transfers a call goes through here. Runs on:
the event loop.
"""

import secrets
from dataclasses import replace

from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.calls.services import CallServices
from cc_tts.calls.transfers.transfer import Transfer, TransferRequest
from cc_tts.config.sip_uri import AllowedTargets
from cc_tts.errors import TransferNotAllowed, WrongState
from cc_tts.ua.refer import message as refer


class Transfers:
    """Begins the transfers of calls."""

    def __init__(self, services: CallServices) -> None:
        self._services = services

    def check_target(self, to: str) -> None:
        """Refuse a target that the configuration does not allow.

        Raises:
            TransferNotAllowed: the configuration does not name it.
        """
        if to not in AllowedTargets(self._services.config.transfer.allowed):
            raise TransferNotAllowed(
                "transfer.allowed names no pattern that takes this target; without patterns nobody is transferred"
            )

    def begin(self, call: Call, request: TransferRequest) -> Transfer:
        """Transfer a call; raises as :meth:`check_target` and :meth:`.Handover.transfer`.

        Raises:
            WrongState: the far side of the consulted call is nobody who could take the place of ours.
            LineUnsupported: one of the calls came by a line without SIP.
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
        self.check_target(request.to)
        transfer_id = request.transfer_id or f"transfer_{secrets.token_hex(8)}"
        return call.handover.transfer(replace(request, transfer_id=transfer_id))
