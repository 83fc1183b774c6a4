"""An IVR: records the call, reads out a balance, and hands those who want a person over to one."""

import asyncio
import sys
from typing import Any

import aiohttp

BALANCES = {"4711": "$12.50", "4712": "$3,210.07"}
WELCOME = "Welcome to the bank. This call is recorded. For your balance press 1, for a person press 2."
MENU = {"client_state": "menu", "prompt": {"text": WELCOME}, "max_digits": 1, "valid_digits": "12", "max_tries": 3}
ASK, WRONG = "Please enter your four digit account number.", "That was not right. Please enter four digits."
ACCOUNT = {"prompt": {"text": ASK}, "invalid_prompt": {"text": WRONG}, "min_digits": 4, "max_digits": 4, "max_tries": 3}
GOODBYE = "speak", {"text": "Please call again later. Goodbye.", "then": "hangup"}


async def post(http: aiohttp.ClientSession, call_id: str, *commands: tuple[str, dict[str, Any]]) -> None:
    """Do one thing after the other on a call, later if the server is full."""
    for action, body in commands:
        while (response := await http.post(f"/v1/calls/{call_id}/{action}", json=body)).status == 503:
            await asyncio.sleep(int(response.headers.get("Retry-After", 1)))
        if not response.ok:
            print(call_id, action, response.status, flush=True)


async def main(api: str, person: str) -> None:
    """Follow the events of all calls, and do what follows from each."""
    types = "call.established,call.gather_complete,call.transfer,call.recording,call.terminated"
    async with (
        aiohttp.ClientSession(api) as http,
        http.ws_connect(f"/v1/events?types={types}", heartbeat=20) as events,
        asyncio.TaskGroup() as tasks,
    ):
        print("ready", flush=True)
        async for message in events:
            event, commands = message.json(), list[tuple[str, dict[str, Any]]]()
            match event["type"].removeprefix("call."), event["data"]:
                case "established", _:
                    commands = [("record", {"channels": "dual"}), ("gather", MENU)]
                case "gather_complete", {"client_state": "menu", "digits": "1"}:
                    commands = [("gather", ACCOUNT)]
                case "gather_complete", {"client_state": "menu", "digits": "2"}:
                    commands = [("transfer", {"to": person, "speak": {"text": "One moment, please."}})]
                case "gather_complete", {"valid": True, "digits": account}:
                    balance = f"Your balance is {BALANCES.get(account, 'not known to us')}. Thank you, and goodbye."
                    commands = [("speak", {"text": balance, "then": "hangup"})]
                case "gather_complete", {"result": "timeout" | "max_digits" | "finish_key"}:
                    commands = [GOODBYE]
                case "transfer", {"state": "failed"}:
                    commands = [GOODBYE]
                case "recording", {"state": "saved", "recording_id": recording_id}:
                    print(event["call_id"], "recorded as", recording_id, flush=True)
                case "terminated", {"ending": {"reason": reason}}:
                    print(event["call_id"], reason, flush=True)
            tasks.create_task(post(http, event["call_id"], *commands))


asyncio.run(main(*sys.argv[1:]))
