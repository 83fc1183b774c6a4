"""The transfer of one call, and the events of the call that concern it. Runs on: the event loop."""

from collections.abc import Iterable

from cc_tts.calls.adoption.record import KeptTransfer
from cc_tts.calls.call_state import CallState
from cc_tts.calls.ending import Ending
from cc_tts.calls.follower import CallView
from cc_tts.calls.prompts.utterance import Utterance
from cc_tts.calls.transfers.transfer import ToldTransfer, Transfer, TransferRequest
from cc_tts.errors import TransferActive, WrongState
from cc_tts.ua import messages


class Handover:
    """Transfers one call, one transfer at a time. :class:`.Transfers` has checked the target."""

    def __init__(self, call: CallView) -> None:
        self._call = call
        self._transfer: Transfer | None = None  # the last one: its hold may be answered after its end
        self.warm: ToldTransfer | None = None

    def transfer(self, request: TransferRequest) -> Transfer:
        """Transfer the far side by REFER; ``call.transfer`` reports the progress.

        Raises:
            WrongState: not established, unless it may be transferred once it is.
            TransferActive: a transfer runs already.
            CcTtsError: as :meth:`.Call.speak`, of a prompt.
        """
        call = self._call
        if call.state is not CallState.ESTABLISHED and not (request.when_answered and call.waits_for_answer):
            raise WrongState(f"call {call.id} is {call.state}: transfer is not possible")
        self.check_idle()
        transfer = Transfer(call, request)
        transfer.begin()
        self._transfer = transfer
        return transfer

    def check_idle(self) -> None:
        if (running := self._running) is not None:
            raise TransferActive(f"transfer {running.id} runs on call {self._call.id}")

    @property
    def kept(self) -> KeptTransfer | None:
        """The part of the running transfer that another server needs."""
        return None if (running := self._running) is None else running.kept

    @property
    def _running(self) -> ToldTransfer | None:
        return self.warm if self._transfer is None or self._transfer.is_over else self._transfer

    def restore(self, kept: KeptTransfer | None, told: Iterable[messages.TransferProgress]) -> None:
        if kept is not None and not self._call.waits_for_answer:  # a call that waits for its answer is routed again
            request = TransferRequest(
                transfer_id=kept.id,
                timeout_ms=kept.timeout_ms,
                on_failure=kept.on_failure,
                hold=kept.hold,
                client_state=kept.client_state,
            )
            self._transfer = Transfer(self._call, request)
            self._transfer.restore(kept, told)

    def take(self, progress: messages.TransferProgress) -> None:
        if self._transfer is not None:
            self._transfer.take(progress)

    def call_established(self) -> None:
        if self._transfer is not None:
            self._transfer.call_established()

    def hold_settled(self) -> None:
        """The call was held or resumed."""
        if self._transfer is not None:
            self._transfer.hold_settled()

    def command_failed(self, command: str) -> None:
        """The user agent could not carry out a command."""
        if self._transfer is not None:
            self._transfer.command_failed(command)

    def prompt_complete(self, utterance: Utterance) -> None:
        if self._transfer is not None:
            self._transfer.prompt_complete(utterance)

    def call_ended(self, ending: Ending) -> None:
        if self._transfer is not None:
            self._transfer.call_ended(ending)
