"""The server sends these to the dispatcher."""

from cc_tts.processes.channel import Message


class SetFreeCalls(Message, frozen=True):
    """Server → dispatcher: how many more calls each UA process takes; ``dispatcher.DOWN`` if it is not ready."""

    free_calls: tuple[int, ...]


class AssignCalls(Message, frozen=True):
    """Server → dispatcher, when that is ready: the Call-IDs of the calls that came in to a UA process before."""

    process: int
    sip_call_ids: tuple[str, ...]
