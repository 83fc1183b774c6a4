"""The messages from the server to the dispatcher."""

from cc_tts.processes.channel import Message


class SetFreeCalls(Message, frozen=True):
    """The number of calls that each UA process still takes; ``dispatcher.DOWN`` if it is not ready."""

    free_calls: tuple[int, ...]


class AssignCalls(Message, frozen=True):
    """The Call-IDs of calls that are older than the dispatcher. Sent when the dispatcher is ready."""

    process: int
    sip_call_ids: tuple[str, ...]
