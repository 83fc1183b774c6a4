"""A receiver of webhooks: answers calls with a question, and says what was pressed."""

import base64
import hmac
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp import web

API, PORT, SECRET = sys.argv[1], int(sys.argv[2]), os.environ["WEBHOOK_SECRET"].removeprefix("whsec_")
ASK = {"prompt": {"text": "How many people are you? Please press a key."}, "max_digits": 1, "max_tries": 3}
ANSWERS = dict[str, dict[str, Any]]()  # to the last events by webhook-id: the same event may come again


def is_genuine(headers: Mapping[str, str], body: bytes) -> bool:
    """Whether the server has signed it, a moment ago, as Standard Webhooks has it."""
    sent_s, signatures = headers.get("webhook-timestamp", ""), headers.get("webhook-signature", "").encode().split()
    signed = f"{headers.get('webhook-id')}.{sent_s}.".encode() + body
    wanted = b"v1," + base64.b64encode(hmac.digest(base64.b64decode(SECRET), signed, "sha256"))
    return any(hmac.compare_digest(wanted, each) for each in signatures) and abs(time.time() - int(sent_s)) < 300


async def react(event: dict[str, Any]) -> dict[str, Any]:
    """Do what an event asks for; returns the answer to it."""
    match event:
        case {"type": "call.incoming"}:
            return {"answer": True, "speak": {"text": "Welcome to the restaurant."}, "gather": ASK}
        case {"type": "call.gather_complete", "call_id": call, "data": {"digits": digits}}:
            text = f"A table for {digits}. See you soon." if digits else "Please call again. Goodbye."
            body = {"text": text, "then": "hangup"}
            async with aiohttp.request("POST", f"{API}/v1/calls/{call}/speak", json=body) as response:
                if response.status == 503:
                    raise web.HTTPServiceUnavailable  # the event comes again later
        case {"type": "call.terminated", "call_id": call, "data": {"ending": ending}}:
            print(call, ending["reason"], flush=True)
    return {}


async def receive(request: web.Request) -> web.Response:
    """Take an event, once."""
    body, event_id = await request.read(), request.headers.get("webhook-id", "")
    if not is_genuine(request.headers, body):
        raise web.HTTPUnauthorized
    if event_id not in ANSWERS:
        ANSWERS[event_id] = await react(json.loads(body))
    if len(ANSWERS) > 10_000:
        del ANSWERS[next(iter(ANSWERS))]
    return web.json_response(ANSWERS[event_id])


app = web.Application()
app.router.add_post("/events", receive)
web.run_app(app, host="127.0.0.1", port=PORT)
