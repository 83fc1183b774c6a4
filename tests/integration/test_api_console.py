"""The files of the console as the API serves them."""

import pytest

from tests.fakes.running_api import make_config, running_api

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("path", ["/", "/console"])
async def test_it_is_found_from_the_root(path: str) -> None:
    async with running_api() as api, api.session.get(path, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, "console/")


async def test_nothing_inline_runs_and_nothing_frames_it() -> None:
    async with running_api(make_config(tokens=())) as api:
        for name, kind in {"": "text/html", "app.js": "text/javascript", "console.css": "text/css"}.items():
            answered = await api.ask("GET", f"/console/{name}")
            assert (answered.status, answered.headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
            policy = dict(part.strip().split(" ", 1) for part in answered.headers["Content-Security-Policy"].split(";"))
            assert policy["default-src"] == "'none'"
            assert (policy["script-src"], policy["style-src"], policy["connect-src"]) == ("'self'",) * 3
            assert policy["frame-ancestors"] == "'none'"
            assert answered.headers["X-Content-Type-Options"] == "nosniff"
            assert answered.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("name", ["handlers.py", "..%2Fhandlers.py", "app.js%00", "nothing.js"])
async def test_there_are_no_other_files(name: str) -> None:
    async with running_api() as api:
        (await api.ask("GET", f"/console/{name}")).check_problem(404, "not_found")


@pytest.mark.parametrize("path", ["/", "/console", "/console/", "/console/app.js"])
async def test_it_can_be_switched_off(path: str) -> None:
    async with running_api(make_config(console=False)) as api:
        (await api.ask("GET", path)).check_problem(404, "not_found")
