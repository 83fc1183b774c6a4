"""Waiting until the softphone hears nothing any more."""

from lab.softphone import Event, SoftphoneProcess

QUIET_S = 1.5


async def until_quiet(phone: SoftphoneProcess, call: str | None = None) -> Event:
    """Wait for the end of what is said, after its ``speech_start`` was taken; returns the last ``speech_end``.

    A sender that stalls for 300 ms in the middle of it has not ended.
    """
    while True:
        end = await phone.wait_event("speech_end", call=call)
        try:
            await phone.wait_event("speech_start", call=call, timeout_s=QUIET_S)
        except TimeoutError:
            return end
