"""A campaign: reminds the people of a CSV file by telephone, and writes to another one what came of each call."""

import asyncio
import sys
import time

import aiohttp
from campaign_parts import append_result, ask, read_people

AT_ONCE, TRIES, CALL_AGAIN, PEOPLE = asyncio.Semaphore(3), 3, ("busy", "no_answer"), ("human", "silence", "unknown")
TYPES = "call.machine_detected,call.machine_greeting_ended,call.gather_complete,call.terminated"


async def remind(http: aiohttp.ClientSession, call: str, person: dict[str, str]) -> str:
    """Call a person, or the machine that answers; returns what came of it."""
    outcome, text = "", "Hello {name}. You have an appointment on {when}.".format(**person)
    path, bye = f"/v1/calls/{call}", "We have a message for you. Please call us. Goodbye."
    gather = {"prompt": {"text": f"{text} To confirm, press 1."}, "max_digits": 1, "valid_digits": "1", "max_tries": 2}
    async with http.ws_connect(f"/v1/events?call_id={call}&types={TYPES}", heartbeat=20) as events:
        if fault := await ask(http, "POST", "/v1/calls", {"to": person["to"], "call_id": call, "amd": {}}):
            return fault
        async for message in events:
            match (event := message.json())["type"], event["data"]:
                case "call.machine_detected", {"result": who, "cause": why} if who != "machine" and why != "call_ended":
                    outcome = await ask(http, "POST", f"{path}/gather", gather) if who in PEOPLE else who
                case "call.machine_greeting_ended", _:
                    outcome, bye = "message_left", f"{text} Please call us. Goodbye."
                case "call.gather_complete", {"valid": valid, "prompt_error": error}:
                    outcome, bye = ("confirmed", "Thank you.") if valid else (error or "reminded", bye)
                case "call.terminated", {"ending": {"reason": reason}}:
                    return outcome or str(reason)
            if outcome and await ask(http, "POST", f"{path}/speak", {"text": bye, "then": "hangup"}):
                return outcome
    return "server_lost"


async def main(api: str, people: str, results: str, first: str = "9", last: str = "19", pause_s: str = "900") -> None:
    """Call everybody in these hours of the day, and after the pause again who was busy or did not answer."""

    async def work(person: dict[str, str]) -> None:
        for number in range(TRIES):
            await asyncio.sleep(number and float(pause_s))
            async with AT_ONCE:
                while not int(first) <= time.localtime().tm_hour <= int(last) or await ask(http, "GET", "/readyz"):
                    await asyncio.sleep(5)
                call = f"reminder-{time.time_ns()}"
                try:
                    result = await remind(http, call, person)
                finally:
                    await ask(http, "DELETE", f"/v1/calls/{call}")  # it may be up, if this program is ended
            if result not in CALL_AGAIN:
                break
        append_result(results, person, result)

    async with aiohttp.ClientSession(api) as http:
        await asyncio.gather(*map(work, read_people(people, results)))


asyncio.run(main(*sys.argv[1:]))
