"""How many public cases of written and spoken text are said right: NeMo's for English, WeTextProcessing's for Chinese.

    python -m bench.text --nemo DIR --wetext DIR [--wrong] [--speed]

DIR holds the projects' case files, fetched beforehand (bench/README.md says from where); nothing of them is part of this
project. Compared after NFKC and in small letters, without punctuation, hyphens and spaces; English "and" counts for nothing,
"oh" is "zero", "negative" is "minus"; Chinese 幺 is 一. Beside ours: the package wetext.

Left out, as no readings: cases whose expected words still hold a digit or are what is written, NeMo's word and punctuation
files, and WeTextProcessing's of characters, tags and filler words. Not English and so left out too: ``1th``, ``12nd``. The
``https colon slash slash`` that NeMo reads of an address is taken off what is wanted: nobody says it on the telephone.
NeMo's serial file reads the digits of codes as numbers, where callers want them one by one.
"""

import argparse
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.report import machine, save
from cc_tts.text.normalizer import Normalizer
from lab.chunk_text import chunk_text
from lab.server_under_test import Json

NOT_READINGS = ("serial", "word", "punctuation", "postprocessor", "preprocessor", "char", "normalizer_tag_oov")
SPEED_TEXTS = {
    "en": "Your balance is $1,234.56, your next payment is due on 3 December, and your order AB12-3456 ships at 4:30 pm. ",
    "zh": "您的余额是1234.5元，下一次付款日期是12月3日，订单号AB123456，下午4:30发货。",
}
SPEED_CHARS = 5000

_NO_ORDINAL = re.compile(
    r"\d*(?:1[1-3](?:st|nd|rd)|(?<!1)1(?:nd|rd|th)|(?<!1)2(?:st|rd|th)|(?<!1)3(?:st|nd|th)|[04-9](?:st|nd|rd))"
)

Case = tuple[str, list[str]]
"""What is written, and what may be said."""


def folded(text: str, language: str) -> str:
    text = unicodedata.normalize("NFKC", text).lower()
    if language == "zh":
        return re.sub(r"[\W_]", "", text).replace("幺", "一")
    text = re.sub(r"\bhttps? colon slash slash ", "", text)
    words = [
        {"oh": "zero", "negative": "minus"}.get(word, word) for word in re.findall(r"[^\W_]+", text) if word != "and"
    ]
    return "".join(words)


def nemo_cases(folder: Path) -> Iterator[tuple[str, Case]]:
    """Category and case of every file."""
    for path in sorted(folder.glob("test_cases_*.txt")):
        category = path.stem.removeprefix("test_cases_")
        lines = path.read_text(encoding="utf-8").splitlines()
        if category == "normalize_with_audio":
            yield from ((category, case) for case in _blocks(lines))
            continue
        for line in lines:
            written, sign, said = line.partition("~")
            if sign and said:
                yield category, (written, [said])


def _blocks(lines: list[str]) -> Iterator[Case]:
    """``~written`` and below it what may be said."""
    written, said = "", list[str]()
    for line in [*lines, "~"]:
        if line.startswith("~"):
            if written and said:
                yield written, said
            written, said = line[1:], []
        elif line.strip():
            said.append(line)


def wetext_cases(folder: Path) -> Iterator[tuple[str, Case]]:
    """Category and case of every file."""
    for path in sorted(folder.glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            written, sign, said = line.partition("=>")
            if sign and said.strip():
                yield path.stem, (written.strip(), [said.strip()])


def is_reading(category: str, case: Case, language: str) -> bool:
    """Whether a case asks how something is read."""
    written, said = case
    if _NO_ORDINAL.fullmatch(written):
        return False
    has_digit = any(any(character.isdigit() for character in folded(each, language)) for each in said)
    return (
        not category.startswith(NOT_READINGS)
        and not has_digit
        and folded(written, language) not in {folded(each, language) for each in said}
    )


def measure(
    cases: Iterator[tuple[str, Case]], language: str, readers: dict[str, Callable[[str], str]], *, show_wrong: bool
) -> Json:
    """Right and total of each category, for each reader."""
    result: Json = {}
    for category, case in cases:
        if not is_reading(category, case, language):
            continue
        row = result.setdefault(category, {"total": 0, **dict.fromkeys(readers, 0)})
        row["total"] += 1
        wanted = {folded(each, language) for each in case[1]}
        for name, read in readers.items():
            said = read(case[0])
            is_right = folded(said, language) in wanted
            row[name] += is_right
            if show_wrong and name == "ours" and not is_right:
                print(f"  {category}: {case[0]!r}\n    said   {said}\n    wanted {' | '.join(case[1])}")
    result["all"] = {key: sum(row[key] for row in result.values()) for key in ("total", *readers)}
    for category, row in result.items():
        shares = ", ".join(f"{name} {row[name]} ({100 * row[name] / row['total']:.0f} %)" for name in readers)
        print(f"{language} {category:24} {row['total']:4}  {shares}")
    return result


def ours(language: str) -> Callable[[str], str]:
    """The words that our text front end hands to an engine."""
    normalizer = Normalizer()
    return lambda text: " ".join(chunk.spoken for chunk in chunk_text(text, normalizer, language=language))


def speed(language: str) -> Json:
    """Milliseconds for 100 characters of a long text, and the longest single sentence."""
    text = SPEED_TEXTS[language]
    read = ours(language)
    read(text)
    long = (text * (SPEED_CHARS // len(text) + 1))[:SPEED_CHARS]
    begun_s = time.perf_counter()
    read(long)
    per_100_ms = (time.perf_counter() - begun_s) * 1000 / (len(long) / 100)
    print(f"{language}: {per_100_ms:.2f} ms for 100 characters")
    return {"ms_per_100_characters": round(per_100_ms, 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nemo", type=Path, metavar="DIR")
    parser.add_argument("--wetext", type=Path, metavar="DIR")
    parser.add_argument("--wrong", action="store_true", help="print what is said otherwise")
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    result: Json = {"machine": machine()}
    if options.nemo:
        result["en"] = measure(nemo_cases(options.nemo), "en", {"ours": ours("en-US")}, show_wrong=options.wrong)
    if options.wetext:
        from wetext import Normalizer as Wetext

        wetext = Wetext(lang="zh", operator="tn")
        readers: dict[str, Callable[[str], str]] = {"ours": ours("zh"), "wetext": wetext.normalize}
        result["zh"] = measure(wetext_cases(options.wetext), "zh", readers, show_wrong=options.wrong)
    if options.speed:
        result["speed"] = {language: speed(language) for language in SPEED_TEXTS}
    save("text", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
