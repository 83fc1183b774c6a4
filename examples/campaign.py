"""A campaign: calls the people of a CSV file, a few at a time, reminds them, and writes what came of each call."""

import argparse
import asyncio
import contextlib
import csv
import secrets
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

TYPES = "call.machine_detected,call.machine_greeting_ended,speak.complete,call.gather_complete,call.terminated"
CALL_TIMEOUT_S = 120
DIAL_TRIES = 10
HEARD = {"normal", "barge_in"}
CALL_IS_OVER = {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}


class Campaign:
    """Its calls that are up, each with the events that it has not seen yet."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http
        self.calls: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self.connected = asyncio.Event()

    async def follow(self) -> None:
        """Hand each call its events. After a lost connection, go on behind the last event."""
        since = ""
        while True:
            try:
                async with self.http.ws_connect(f"/v1/events?types={TYPES}{since}") as events:
                    self.connected.set()
                    async for message in events:
                        event = message.json()
                        since = f"&since={event['id']}"
                        if event["call_id"] in self.calls:
                            self.calls[event["call_id"]].put_nowait(event)
            except aiohttp.WSServerHandshakeError:  # what has happened since then is no longer known
                since = ""
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(1)

    async def remind(self, person: dict[str, str]) -> str:
        """Call one person; returns what came of it."""
        call_id = f"reminder-{secrets.token_hex(8)}"
        self.calls[call_id] = asyncio.Queue()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await self.dial(call_id, person["to"]) or await self.talk(call_id, person)
        except TimeoutError:
            await self.hang_up(call_id)
            return "timeout"
        except aiohttp.ClientError:
            return "server_lost"
        finally:
            del self.calls[call_id]

    async def dial(self, call_id: str, to: str) -> str:
        """Place the call, later if the server is full; returns why it cannot be placed, if so."""
        for _ in range(DIAL_TRIES):
            async with self.http.post("/v1/calls", json={"to": to, "call_id": call_id, "amd": {}}) as response:
                if response.ok:
                    return ""
                if response.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    return str((await response.json())["code"])
                await asyncio.sleep(int(response.headers.get("Retry-After", 1)))
        return "overload"

    async def talk(self, call_id: str, person: dict[str, str]) -> str:
        """Remind, ask a person for a key, and wait for the end of the call. Who was told nothing was not reminded."""
        outcome, unheard = "", "not_heard"
        reminder = f"Hello {person['name']}. You have an appointment on {person['when']}."
        ask = {
            "prompt": {"text": f"{reminder} To confirm, press 1."},
            "max_digits": 1,
            "valid_digits": "1",
            "max_tries": 2,
        }
        while True:
            match await self.calls[call_id].get():
                case {"type": "call.machine_detected", "data": {"result": "machine", **_rest}}:
                    outcome = "machine"
                case {
                    "type": "call.machine_detected",
                    "data": {"result": "fax" | "ivr" | "unavailable" as outcome, **_rest},
                }:
                    await self.hang_up(call_id)
                case {"type": "call.machine_detected", "data": {"cause": cause}} if cause != "call_ended":
                    outcome = await self.command(call_id, "gather", ask)
                    if outcome:
                        await self.say_goodbye(call_id, "We have a message for you. Please call us. Goodbye.")
                case {"type": "call.machine_greeting_ended"}:
                    outcome = "message_left"
                    await self.say_goodbye(call_id, f"{reminder} Please call us. Goodbye.")
                case {"type": "speak.complete", "data": {"completion_cause": cause, "error": error}}:
                    unheard = "" if cause in HEARD else error or cause
                case {"type": "call.gather_complete", "data": {"valid": valid}}:
                    outcome = "confirmed" if valid else unheard or "reminded"
                    await self.say_goodbye(call_id, "Thank you." if valid else "Please call us. Goodbye.")
                case {"type": "call.terminated", "data": {"ending": ending}}:
                    return outcome or str(ending["reason"])

    async def say_goodbye(self, call_id: str, text: str) -> None:
        """Say the last words and hang up, also where they cannot be said."""
        if await self.command(call_id, "speak", {"text": text, "then": "hangup"}):
            await self.hang_up(call_id)

    async def command(self, call_id: str, action: str, body: dict[str, Any]) -> str:
        """Have something done on a call, later if the server is full; returns why it can never be done, if so."""
        while True:
            async with self.http.post(f"/v1/calls/{call_id}/{action}", json=body) as response:
                if response.ok or response.status in CALL_IS_OVER:
                    return ""
                if response.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    return str((await response.json())["code"])
                await asyncio.sleep(int(response.headers.get("Retry-After", 1)))

    async def hang_up(self, call_id: str) -> None:
        """End a call, if it is not over."""
        with contextlib.suppress(aiohttp.ClientError):
            await self.http.delete(f"/v1/calls/{call_id}")


async def main(arguments: argparse.Namespace) -> None:
    """Work through the file."""
    with arguments.people.open(newline="") as file:
        people = list(csv.DictReader(file))
    free = asyncio.Semaphore(arguments.at_once)
    async with aiohttp.ClientSession(arguments.api) as http:
        campaign = Campaign(http)
        following = asyncio.create_task(campaign.follow())
        await campaign.connected.wait()

        async def remind(person: dict[str, str]) -> None:
            async with free:
                person["result"] = await campaign.remind(person)
            print(f"{person['to']} {person['result']}", flush=True)

        await asyncio.gather(*map(remind, people))
        following.cancel()
    with arguments.results.open("w", newline="") as file:
        results = csv.DictWriter(file, ["to", "name", "when", "result"], extrasaction="ignore")
        results.writeheader()
        results.writerows(people)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("api", help="such as http://127.0.0.1:8080")
parser.add_argument("people", type=Path, help="a CSV file with the columns to, name and when")
parser.add_argument("results", type=Path, help="the same with the column result")
parser.add_argument("--at-once", type=int, default=3, help="calls at the same time")
asyncio.run(main(parser.parse_args()))
