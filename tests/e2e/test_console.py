"""The console in Debian's Chromium: no error on its console, nothing that its policy forbids, and calls that obey it."""

import asyncio
import contextlib
import dataclasses
import importlib
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from cc_tts.config.schema import Config, TenantConfig, TokenConfig, WebhookConfig, WebhooksConfig
from cc_tts.media.quality import Levels, Quality
from cc_tts.ua import messages
from lab import needs
from lab.ports import free_ports
from lab.server_under_test import Server
from lab.softphone import SoftphoneProcess
from lab.waiting import until
from tests.fakes.running_api import RunningApi, make_config, running_api

pytestmark = pytest.mark.e2e

Page = Any
NUM_CALLS = 200
TOKEN = "the-operators-token"
EXPECTED_REFUSALS = ("status of 401", "status of 403")
"""Chromium writes these itself: a server with tokens is asked without one first, and tenants may not see everything."""
REPORT_VIOLATIONS = """document.addEventListener("securitypolicyviolation",
  (event) => console.error(`CSP ${event.violatedDirective} ${event.blockedURI}`))"""


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def browser() -> AsyncIterator[Any]:
    chromium = shutil.which("chromium")
    try:
        playwright: Any = importlib.import_module("playwright.async_api")
    except ImportError:
        playwright = None
    if playwright is None or chromium is None:
        needs.missing("browser", "no browser: apt install chromium, pip install -r requirements/browser.txt")
    async with playwright.async_playwright() as driver:
        started = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        await started.close()


@contextlib.asynccontextmanager
async def opened(browser: Any, url: str, **options: Any) -> AsyncIterator[Page]:
    """A page of its own. At its end nothing was amiss in it, and no token was in an address."""
    context = await browser.new_context(**({"locale": "en-GB"} | options))
    await context.add_init_script(REPORT_VIOLATIONS)
    page = await context.new_page()
    page.set_default_timeout(15_000)
    complaints: list[str] = []
    addresses: list[str] = []
    page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: addresses.append(request.url))
    try:
        await page.goto(url)
        yield page
        assert [each for each in complaints if not any(part in each for part in EXPECTED_REFUSALS)] == []
        assert not [address for address in addresses if TOKEN in address]
    finally:
        await context.close()


async def tab_to(page: Page, name: str) -> None:
    for _ in range(60):
        await page.keyboard.press("Tab")
        focused = "(e => e.labels?.length ? e.labels[0].innerText : e.innerText)(document.activeElement)"
        if str(await page.evaluate(focused)).startswith(name):
            return
    raise AssertionError(f"Tab does not come to {name}")


async def test_a_call_is_spoken_to_and_ended_with_the_keyboard_alone(
    browser: Any, server: Server, phone: SoftphoneProcess
) -> None:
    await phone.dial(server.uri("silent"))
    call = await server.until_call(lambda call: call["state"] == "established")
    async with opened(browser, server.url) as page, server.events() as log:
        row = page.locator(f'tr[data-key="{call["id"]}"]')
        await row.wait_for()
        await tab_to(page, await row.locator("a").inner_text())
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", level=1, name="Call from").wait_for()
        await tab_to(page, "Words")
        await page.keyboard.type("Hello from the console.")
        await tab_to(page, "Speak")
        await page.keyboard.press("Enter")
        await phone.wait_event("speech_start")
        said = await log.wait("speak.complete")
        assert (said["data"]["completion_cause"], said["data"]["spoken_text"]) == ("normal", "Hello from the console.")
        await page.locator("td", has_text="Hello from the console.").first.wait_for()
        await page.locator("svg.timeline rect.speech").wait_for()
        await tab_to(page, "Hang up")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Press again").wait_for()
        assert not [url for url in asked if url.endswith("/hangup")], "one key press ends no call"
        await page.keyboard.press("Enter")
        ended = await server.until_terminated()
        await page.locator("dd", has_text="we hung up").wait_for()
    assert ended["ending"]["reason"] == "local_hangup"
    await phone.report()


async def test_what_is_kept_of_a_call(browser: Any, server: Server, phone: SoftphoneProcess) -> None:
    """Its recording, its report, its SIP messages; and voices are heard."""
    await phone.dial(server.uri("long"))
    call = await server.until_call(lambda call: call["state"] == "established")
    async with opened(browser, f"{server.url}/console/#/calls/{call['id']}") as page:

        async def press(name: str) -> None:
            await page.get_by_role("button", name=name, exact=True).click()

        await press("Record")
        await page.get_by_role("status").filter(has_text="Recording begins").wait_for()
        await asyncio.sleep(0.5)
        await press("End the recording")
        await page.get_by_role("status").filter(has_text="is over and kept").wait_for()
        await page.locator("td", has_text="state saved").wait_for()
        await press("Recordings")
        await page.get_by_role("cell", name="kept").wait_for()
        await press("SIP messages")
        await page.locator("pre", has_text="INVITE").wait_for()
        async with page.expect_download() as download:
            await press("Report")
        report = await (await download.value).path()
        assert "<svg" in report.read_text("utf-8")
        await page.get_by_label("Transfer to").fill("sip:agent@192.0.2.1")
        await press("Transfer")
        await page.get_by_role("status").filter(has_text="may not do that").wait_for()
        await page.get_by_role("link", name="Voices").click()
        await page.get_by_role("button", name="Listen en-us", exact=True).click()
        await page.wait_for_selector("audio[src^='blob:']", state="attached")
        loaded = (
            "new Promise(r => { const a = document.querySelector('audio'); a.duration ? r() : a.ondurationchange = r })"
        )
        await page.evaluate(loaded)
        assert await page.evaluate("document.querySelector('audio').duration") > 0.5
        await page.get_by_role("link", name="Charts").click()
        await page.get_by_role("row", name="espeak ready").wait_for()
    await phone.hangup()


def patient(**http: Any) -> Config:
    """A configuration for a browser and a server that share a busy machine."""
    return make_config(request_timeout_s=30.0, **http)


def sounding(mos: float | None = 4.4, *, lost: int = 0, underruns: int = 0) -> Quality:
    return Quality(packets_sent=500, packets_received=500 - lost, packets_lost=lost, mos=mos, underruns=underruns)


async def crowd(api: RunningApi, num_calls: int) -> None:
    """Live calls, of which number 7 loses words and number 9 has gaps."""
    api.registry.ua.max_calls = num_calls
    for number in range(num_calls):
        api.registry.add(f"call-{number}", answered=True)
        quality = {7: sounding(2.1, lost=150), 9: sounding(underruns=4)}.get(number, sounding())
        api.registry.ua.report(messages.QualityReport(call_id=f"call-{number}", quality=quality))


@contextlib.asynccontextmanager
async def heard(api: RunningApi) -> AsyncIterator[None]:
    """Packets of callers without losses go on coming, however long the test takes: those of silent callers are a problem."""

    async def go_on() -> None:
        while True:
            await asyncio.sleep(1)
            for call in api.registry.calls():
                if call.quality.packets_lost == 0:
                    more = dataclasses.replace(call.quality, packets_received=call.quality.packets_received + 50)
                    api.registry.ua.report(messages.QualityReport(call_id=call.id, quality=more))

    going_on = asyncio.create_task(go_on())
    try:
        yield
    finally:
        going_on.cancel()


async def test_the_worst_of_200_calls_is_first_and_rows_stay_the_same(browser: Any) -> None:
    async with running_api(patient()) as api:
        await crowd(api, NUM_CALLS)
        async with heard(api), opened(browser, f"http://127.0.0.1:{api.port}/console/") as page:
            rows = page.locator("tbody tr")
            await rows.nth(NUM_CALLS - 1).wait_for()
            keys = "[...document.querySelectorAll('tbody tr')].map(row => row.dataset.key)"
            assert (await page.evaluate(keys))[:2] == ["call-7", "call-9"]
            assert "30 % of the caller lost" in await rows.nth(0).inner_text()
            assert "gaps in our speech: 4" in await rows.nth(1).inner_text()
            await page.get_by_text("calls: 200, with a problem: 2").wait_for()
            await page.evaluate(
                "window.seen = new Map([...document.querySelectorAll('tbody tr')].map(r => [r.dataset.key, r]))"
            )
            api.registry.ua.report(messages.QualityReport(call_id="call-50", quality=sounding(1.2, lost=300)))
            api.registry.ua.ended("call-7", by="remote", sip_code=200)
            await page.locator("tbody tr[data-key=call-50]:first-child").wait_for()
            await page.locator("tr[data-key=call-7]").wait_for(state="detached")
            kept = "[...document.querySelectorAll('tbody tr')].every(row => window.seen.get(row.dataset.key) === row)"
            assert await page.evaluate(kept)


async def test_how_loud_a_call_is_can_be_seen_and_read_out(browser: Any) -> None:
    async with running_api(patient()) as api:
        await crowd(api, 2)
        url = f"http://127.0.0.1:{api.port}/console/"
        async with opened(browser, url, locale="zh-CN") as page:
            await page.locator("tr[data-key=call-1]").wait_for()
            await until(lambda: len(set(api.registry.ua.commands("levels"))) == 2)
            levels = Levels(received_dbov=-127, sent_dbov=-18)
            for call_id in ("call-0", "call-1"):
                report = messages.QualityReport(call_id=call_id, quality=sounding(), levels=levels)
                api.registry.ua.report(report)
            await page.wait_for_selector("tr[data-key=call-1] meter[aria-valuetext='-18 dBov']")
            meter = page.locator("tr[data-key=call-1]").get_by_role("meter", name="对方听到")
            assert await meter.evaluate("meter => meter.value") == -18
            await page.goto(f"{url}#/calls/call-0")
            await page.wait_for_selector("main > p meter[aria-valuetext='-18 dBov']")
            async with page.expect_request(lambda request: "levels=false" in request.url):
                await page.goto(f"{url}#/prompts")


async def test_a_hidden_tab_asks_nothing_and_goes_on_where_it_was(browser: Any) -> None:
    async with running_api(patient()) as api:
        await crowd(api, 2)
        async with opened(browser, f"http://127.0.0.1:{api.port}/console/") as page:
            asked: list[str] = []
            await page.locator("tr[data-key=call-1]").wait_for()

            async def turn(state: str) -> None:
                is_hidden = str(state == "hidden").lower()
                await page.evaluate(
                    f"Object.defineProperty(document, 'hidden', {{value: {is_hidden}, configurable: true}})"
                )
                await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

            await turn("hidden")
            await until(lambda: api.registry.services.events.num_subscribers == 0)
            page.on("request", lambda request: asked.append(request.url))
            api.registry.ua.ended("call-0", by="remote", sip_code=200)
            api.registry.add("call-2", answered=True)
            await asyncio.sleep(1)
            assert asked == []
            await turn("visible")
            await page.locator("tr[data-key=call-2]").wait_for()
            await page.locator("tr[data-key=call-0]").wait_for(state="detached")
            assert await page.locator("tbody tr").count() == 2
            assert f"http://127.0.0.1:{api.port}/v1/calls" not in asked, "the events that it has missed are enough"
            await page.get_by_label("calls that have ended, too").check()
            await page.locator("tr[data-key=call-0]").wait_for()
            await page.evaluate("(now => Date.now = () => now() + 400_000)(Date.now)")
            await page.locator("tr[data-key=call-0]").wait_for(state="detached")


async def test_a_wrong_token_is_told_and_a_tenant_sees_its_own(browser: Any) -> None:
    nobody = WebhookConfig(url=f"http://127.0.0.1:{free_ports()}/", secret=f"whsec_{'a2V5' * 8}", name="crm")
    tokens = (TokenConfig(TOKEN), TokenConfig("token-of-acme", tenant="acme"))
    config = dataclasses.replace(
        patient(tokens=tokens), tenants={"acme": TenantConfig()}, webhooks=WebhooksConfig(endpoints=(nobody,))
    )

    async with running_api(config) as api:
        await crowd(api, 3)
        api.registry.call("call-1").tenant = "acme"
        async with opened(browser, f"http://127.0.0.1:{api.port}/") as page:

            async def sign_in(token: str) -> None:
                await page.get_by_label("Token").fill(token)
                await page.keyboard.press("Enter")

            await sign_in("a-wrong-token")
            await page.get_by_role("status").filter(has_text="does not know this token").wait_for()
            await sign_in("token-of-acme")
            await page.locator("tr[data-key=call-1]").wait_for()
            assert await page.locator("tbody tr").count() == 1
            await page.get_by_role("link", name="Webhooks").click()
            await page.get_by_role("status").filter(has_text="may not do that").wait_for()
            await page.get_by_role("button", name="Sign out").click()
            await sign_in(TOKEN)
            await page.get_by_role("link", name="Live calls").click()
            await page.locator("tr[data-key=call-2]").wait_for()
            assert await page.locator("tbody tr").count() == 3
            await page.get_by_role("link", name="Webhooks").click()
            await page.get_by_role("button", name="Test crm").click()
            await page.get_by_role("status").filter(has_text="did not take the test").wait_for()
            stored = "JSON.stringify({...localStorage}) + document.cookie"
            assert TOKEN not in await page.evaluate(stored)


async def test_names_of_callers_are_no_markup(browser: Any) -> None:
    async with running_api(patient()) as api:
        caller = '"<img src=x onerror=alert(1)>" <sip:<b>bold</b>@127.0.0.1>'
        api.registry.ua.incoming("bob", call_id="c1", caller=caller, headers={"X-Note": "<script>alert(1)</script>"})
        async with opened(browser, f"http://127.0.0.1:{api.port}/console/#/calls/c1") as page:
            await page.locator("dd", has_text="<img src=x onerror=alert(1)>").wait_for()
            await page.locator("dd", has_text="<script>alert(1)</script>").wait_for()
            assert await page.locator("main img, main b, main script").count() == 0


@pytest.mark.parametrize(("locale", "title"), [("en-GB", "Live calls"), ("zh-CN", "实时通话")])
async def test_every_page_fits_a_telephone(browser: Any, locale: str, title: str) -> None:
    async with running_api(patient()) as api:
        await crowd(api, 12)
        url, screen = f"http://127.0.0.1:{api.port}/console/", {"width": 360, "height": 740}
        async with opened(browser, url, viewport=screen, locale=locale, color_scheme="dark") as page:
            await page.get_by_role("heading", level=1, name=title).wait_for()
            for place in ("calls", "calls/call-7", "charts", "voices", "prompts", "webhooks"):
                await page.goto(f"{url}#/{place}")
                await page.locator("h1").wait_for()
                await asyncio.sleep(0.2)  # what it asks for has come, or has not: either has to fit
                assert await page.evaluate("document.documentElement.scrollWidth") <= 360, place
                heading = await page.evaluate("document.activeElement.tagName")
                assert heading == "H1", "the focus is at the beginning of the page"
