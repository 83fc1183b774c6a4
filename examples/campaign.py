"""A campaign: reminds the people of a CSV file by telephone, and prints it with what came of each call."""

import asyncio
import csv
import sys
import time

import aiohttp

AT_ONCE, TRIES, CALL_AGAIN, PEOPLE = asyncio.Semaphore(3), 3, ("busy", "no_answer"), ("human", "silence", "unknown")
TYPES = "call.machine_detected,call.machine_greeting_ended,call.gather_complete,call.terminated"


async def post(http: aiohttp.ClientSession, path: str, body: dict[str, object]) -> str:
    """Have something done, later if the server is full; returns why it can never be done, if so."""
    while (response := await http.post(path, json=body)).status == 503:
        await asyncio.sleep(int(response.headers.get("Retry-After", 1)))
    return "" if response.ok or response.status in (404, 409) else str((await response.json())["code"])


async def remind(http: aiohttp.ClientSession, person: dict[str, str]) -> str:
    """Call a person, or the machine that answers; returns what came of it."""
    call, text = f"reminder-{time.time_ns()}", "Hello {name}. You have an appointment on {when}.".format(**person)
    outcome, bye = "", "We have a message for you. Please call us. Goodbye."
    ask = {"prompt": {"text": f"{text} To confirm, press 1."}, "max_digits": 1, "valid_digits": "1", "max_tries": 2}
    async with AT_ONCE, http.ws_connect(f"/v1/events?call_id={call}&types={TYPES}", heartbeat=20) as events:
        if fault := await post(http, "/v1/calls", {"to": person["to"], "call_id": call, "amd": {}}):
            return fault
        async for message in events:
            match (event := message.json())["type"], event["data"]:
                case "call.machine_detected", {"result": who, "cause": why} if who != "machine" and why != "call_ended":
                    outcome = await post(http, f"/v1/calls/{call}/gather", ask) if who in PEOPLE else who
                case "call.machine_greeting_ended", _:
                    outcome, bye = "message_left", f"{text} Please call us. Goodbye."
                case "call.gather_complete", {"valid": valid, "prompt_error": error}:
                    outcome, bye = ("confirmed", "Thank you.") if valid else (error or "reminded", bye)
                case "call.terminated", {"ending": {"reason": reason}}:
                    return outcome or str(reason)
            if outcome and await post(http, f"/v1/calls/{call}/speak", {"text": bye, "then": "hangup"}):
                await http.delete(f"/v1/calls/{call}")
    return "server_lost"


async def main(api: str, first_hour: str = "9", last_hour: str = "19", pause_s: str = "900") -> None:
    """Call everybody in these hours of the day, and after the pause again who was busy or did not answer."""

    async def work(person: dict[str, str]) -> None:
        for number in range(TRIES):
            await asyncio.sleep(number and float(pause_s))
            while not int(first_hour) <= time.localtime().tm_hour <= int(last_hour):
                await asyncio.sleep(60)
            if (result := await remind(http, person)) not in CALL_AGAIN:
                break
        csv.writer(sys.stdout).writerow([*person.values(), result])

    async with aiohttp.ClientSession(api) as http:
        await asyncio.gather(*map(work, csv.DictReader(sys.stdin)))


asyncio.run(main(*sys.argv[1:]))
