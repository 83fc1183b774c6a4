"""A menu: 1 speaks the balance, 2 repeats the menu, 9 says goodbye and hangs up."""

import asyncio
import sys

import aiohttp

MENU = "For your balance press 1. To hear this again press 2. To end the call press 9."
BALANCES = {"sip:alice@127.0.0.1": "$12.50"}


async def speak(http: aiohttp.ClientSession, call_id: str, text: str, then: str = "stay") -> None:
    """Replace what is being spoken on the call."""
    body = {"text": text, "queue": "replace", "then": then}
    async with http.post(f"/v1/calls/{call_id}/speak", json=body) as response:
        if not response.ok:
            print(call_id, response.status, await response.text(), flush=True)


async def main(api: str) -> None:
    """Follow the events of all calls and react to them."""
    callers: dict[str, str] = {}
    types = "call.incoming,call.established,call.dtmf,call.terminated"
    async with aiohttp.ClientSession(api) as http, http.ws_connect(f"/v1/events?types={types}") as events:
        print("ready", flush=True)
        async for message in events:
            event = message.json()
            call_id, data = event["call_id"], event["data"]
            match event["type"], data.get("digit"):
                case "call.incoming", _:
                    callers[call_id] = data["caller"].strip("<>")
                case "call.established", _:
                    await speak(http, call_id, "Welcome to the bank. " + MENU)
                case "call.dtmf", "1":
                    balance = BALANCES.get(callers.get(call_id, ""), "not known to us")
                    await speak(http, call_id, f"Your balance is {balance}. {MENU}")
                case "call.dtmf", "9":
                    await speak(http, call_id, "Thank you. Goodbye.", then="hangup")
                case "call.dtmf", _:
                    await speak(http, call_id, MENU)
                case "call.terminated", _:
                    print(callers.pop(call_id, ""), data["ending"]["reason"], flush=True)


asyncio.run(main(sys.argv[1]))
