"""An IVR: asks for an account number, speaks the balance and hangs up."""

import asyncio
import sys
from http import HTTPStatus
from typing import Any

import aiohttp

BALANCES = {"4711": "$12.50", "4712": "$3,210.07"}
ASK = {
    "prompt": {"text": "Welcome to the bank. Please enter your four digit account number."},
    "invalid_prompt": {"text": "That was not right. Please enter four digits."},
    "min_digits": 4,
    "max_digits": 4,
    "max_tries": 3,
}


async def post(http: aiohttp.ClientSession, call_id: str, action: str, body: dict[str, Any]) -> None:
    """Do something on a call, later if the server is full."""
    while True:
        async with http.post(f"/v1/calls/{call_id}/{action}", json=body) as response:
            if response.status != HTTPStatus.SERVICE_UNAVAILABLE:
                break
            await asyncio.sleep(int(response.headers.get("Retry-After", 1)))
    if not response.ok:
        print(call_id, action, response.status, flush=True)


async def main(api: str) -> None:
    """Follow the events of all calls and react to them."""
    types = "call.established,call.gather_complete,call.terminated"
    async with (
        aiohttp.ClientSession(api) as http,
        http.ws_connect(f"/v1/events?types={types}") as events,
        asyncio.TaskGroup() as tasks,
    ):
        print("ready", flush=True)
        async for message in events:
            match message.json():
                case {"type": "call.established", "call_id": call_id}:
                    tasks.create_task(post(http, call_id, "gather", ASK))
                case {"type": "call.gather_complete", "data": {"result": "call_ended"}}:
                    pass  # the caller has hung up
                case {"type": "call.gather_complete", "call_id": call_id, "data": {"valid": True, "digits": account}}:
                    balance = BALANCES.get(account, "not known to us")
                    text = f"Your balance is {balance}. Thank you, and goodbye."
                    tasks.create_task(post(http, call_id, "speak", {"text": text, "then": "hangup"}))
                case {"type": "call.gather_complete", "call_id": call_id}:
                    tasks.create_task(
                        post(http, call_id, "speak", {"text": "Please call again. Goodbye.", "then": "hangup"})
                    )
                case {"type": "call.terminated", "call_id": call_id, "data": data}:
                    print(call_id, data["ending"]["reason"], flush=True)


asyncio.run(main(sys.argv[1]))
