"""Parts of a campaign: the CSV files of who is to be called and of what came of it, and a server that is full or away."""

import asyncio
import csv
import io
import re
import sys
from pathlib import Path

import aiohttp

COLUMNS = ("to", "name", "when")
NUMBER_OR_URI = re.compile(r"\+?[0-9*#]{1,32}|sips?:\S+")


def read_people(people: str, results: str) -> list[dict[str, str]]:
    """Return who has no result yet, each row once; end the program if a row is unclear."""
    text, faults, found = _text(people), list[str](), dict[tuple[str, ...], dict[str, str]]()
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for row in filter(lambda row: any(row.values()), reader):  # a table may end with rows of empty cells
            if fault := _fault(row):
                faults.append(f"line {reader.line_num}: {fault}")
            else:
                found[tuple(row.values())] = row
    except csv.Error as error:
        faults.append(f"behind line {reader.line_num}: {error}")
    if faults:
        sys.exit("\n".join([f"{people}: nobody is called before this is mended", *faults[:10]]))
    before = csv.reader(io.StringIO(_text(results) if Path(results).exists() else "", newline=""))
    done = {tuple(row[:-1]) for row in before}
    return [row for values, row in found.items() if values not in done]


def append_result(results: str, person: dict[str, str], result: str) -> None:
    """Write a line at once, so that none is lost if the program is ended."""
    with Path(results).open("a", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerow([*person.values(), result])


async def ask(http: aiohttp.ClientSession, method: str, path: str, body: dict[str, object] | None = None) -> str:
    """Have something done, later if the server is full or away; return why it can never be done, if so."""
    while True:
        try:
            if (response := await http.request(method, path, json=body)).status != 503:
                return "" if response.ok or response.status in (404, 409) else str((await response.json())["code"])
            why, wait_s = (await response.json())["detail"], int(response.headers.get("Retry-After", 1))
        except aiohttp.ClientConnectionError as error:
            why, wait_s = str(error), 1
        print(f"{method} {path}: {why}; again in {wait_s} s", file=sys.stderr)
        await asyncio.sleep(wait_s)


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        sys.exit(f"{path} is not UTF-8: save it as CSV UTF-8")


def _fault(row: dict[str, str]) -> str:
    if missing := [name for name in COLUMNS if not (row.get(name) or "").strip()]:
        return f"{' and '.join(missing)} is missing"
    if None in row:
        return "it has more cells than the first line; a text with a comma is put in quotes"
    if not NUMBER_OR_URI.fullmatch(row["to"]):
        return f"{row['to'][:80]!r} is no number and no SIP URI; a spreadsheet keeps a long number whole if it is text"
    return ""
