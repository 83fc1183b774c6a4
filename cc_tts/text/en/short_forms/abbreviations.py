"""English words for abbreviations with a full stop: titles, streets, companies, "e.g.", "etc."."""

import re

from cc_tts.text.en.numbers import plural
from cc_tts.text.en.short_forms.contractions import CONTRACTED, contracted, done, written_out
from cc_tts.text.en.short_forms.roman_numerals import ROMAN_RULES
from cc_tts.text.en.units import PLURALS, SINGULARS
from cc_tts.text.sentences import BEGINS_SENTENCE, common_words
from cc_tts.text.substitution import ends_sentence, grouped, in_order, kept_stop

_TITLES = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Miz", "Prof": "Professor", "Rev": "Reverend", "Hon": "Honorable",
    "Capt": "Captain", "Lt": "Lieutenant", "Col": "Colonel", "Gen": "General", "Sgt": "Sergeant", "Mt": "Mount",
    "Sen": "Senator", "Gov": "Governor", "Rep": "Representative", "Pres": "President", "Atty": "Attorney",
    "Fr": "Father", "Messrs": "Messrs", "Mme": "Madame", "Mx": "Mix", "Mmes": "Mesdames", "Msgr": "Monsignor",
    "Amb": "Ambassador", "Maj": "Major", "Cpl": "Corporal",
    "Cmdr": "Commander", "Adm": "Admiral", "Pvt": "Private", "Supt": "Superintendent",
}  # fmt: skip
_STATES = {
    "Ala": "Alabama", "Ariz": "Arizona", "Ark": "Arkansas", "Calif": "California", "Colo": "Colorado",
    "Conn": "Connecticut", "Fla": "Florida", "Kan": "Kansas", "Mass": "Massachusetts", "Mich": "Michigan",
    "Minn": "Minnesota", "Mont": "Montana", "Neb": "Nebraska", "Nev": "Nevada", "Okla": "Oklahoma", "Ore": "Oregon",
    "Penn": "Pennsylvania", "Tenn": "Tennessee", "Wash": "Washington", "Wis": "Wisconsin", "Wyo": "Wyoming",
}  # fmt: skip
_FIRST_NAMES = {
    "Thos": "Thomas", "Jas": "James", "Wm": "William", "Geo": "George", "Chas": "Charles", "Robt": "Robert",
    "Jos": "Joseph", "Benj": "Benjamin", "Edw": "Edward", "Saml": "Samuel", "Danl": "Daniel",
}  # fmt: skip
_WORDS = {
    "jr": "Junior", "sr": "Senior", "ave": "Avenue", "rd": "Road", "ln": "Lane", "hwy": "Highway",
    "inc": "Incorporated", "corp": "Corporation", "ltd": "Limited", "co": "Company", "etc": "et cetera",
    "pkg": "package", "mfr": "manufacturer", "esq": "Esquire",
    "yr": "year", "wk": "week", "hr": "hour", "ea": "each",
    "rte": "Route", "aves": "Avenues", "sts": "Streets", "rep": "representative", "pts": "points",
    "ck": "check", "agmt": "agreement", "trk": "track", "mvt": "movement", "ctrm": "courtroom",
    "dkt": "docket", "repl": "replace", "lim": "limit", "cr": "credit", "vis": "visibility", "eq": "equal",
    "rpt": "report",
    "cxl": "cancel",
    "ctn": "carton",
    "ctns": "cartons", "diff": "difference", "occ": "occupancy", "blt": "built", "gtt": "drop", "gtts": "drops",
}  # fmt: skip
_NEVER_LAST = {
    "acc": "account", "cor": "corner", "ph": "phone", "opp": "opposite", "cnr": "corner", "dpt": "department",
    "apt": "apartment", "ste": "Suite", "dept": "department", "est": "established", "approx": "approximately",
    "avg": "average", "appt": "appointment", "acct": "account", "tel": "telephone", "govt": "government",
    "max": "maximum", "min": "minimum", "incl": "including", "excl": "excluding", "ext": "extension", "vs": "versus",
    "qty": "quantity", "amt": "amount", "ref": "reference", "bldg": "building", "rm": "room", "fl": "floor",
    "temp": "temperature", "exp": "expires", "sq": "square", "attn": "attention",
    "vit": "vitamin", "ver": "version", "atty": "attorney", "ind": "individual", "fam": "family", "agg": "aggregate",
    "ret": "retired",
    "coll": "collision",
    "chg": "charge",
    "inv": "invoice", "conf": "confirmation", "sta": "Station",
    "mtg": "meeting", "qtr": "quarter", "bros": "Brothers", "misc": "miscellaneous", "asst": "assistant",
    "assn": "association", "univ": "University", "intl": "International", "addl": "additional", "bal": "balance",
    "pymt": "payment", "pmt": "payment", "req": "required", "svc": "service", "cust": "customer", "wt": "weight",
    "ht": "height", "supv": "supervisor", "natl": "National", "prev": "previous", "orig": "original", "eff": "effective",
    "recd": "received", "sched": "scheduled", "mkt": "market", "hosp": "Hospital", "elem": "Elementary",
    "avail": "available", "ded": "deductible", "auth": "authorization",
    "std": "standard", "adj": "adjusted", "alt": "alternate", "cert": "certificate", "cont": "continued",
    "dia": "diameter", "div": "division", "enc": "enclosed", "freq": "frequency", "grp": "group", "lic": "license",
    "loc": "location", "mfg": "manufacturing", "prem": "premium", "sig": "signature", "stn": "station",
    "tkt": "ticket", "veh": "vehicle", "trans": "transaction", "tot": "total", "res": "reservation", "btwn": "between",
    "pref": "preferred", "esp": "especially", "dtd": "dated", "flr": "floor", "usu": "usually", "encl": "enclosed",
    "abt": "about",
}  # fmt: skip
"""Their full stop ends no sentence."""
_ONLY_CAPITALISED = frozenset({"ste", "est"})
_NUMBERED_PARTS = {
    "vol": "volume", "p": "page", "pp": "pages", "pg": "page", "ch": "chapter", "fig": "figure", "par": "paragraph",
    "para": "paragraph",
    "opt": "option", "art": "article", "ver": "version", "v": "version",
    "sec": "section", "sc": "scene", "op": "opus", "gr": "grade", "mi": "mile", "pt": "part", "ct": "count",
    "dist": "district", "eq": "equation", "rd": "round", "cl": "clause", "col": "column",
    "eqs": "equations", "figs": "figures", "vols": "volumes", "chs": "chapters",
}  # fmt: skip
_CAPITALISED_PARTS = "|".join(short.capitalize() for short in _NUMBERED_PARTS if len(short) > 1)
CHAT_WORDS = {
    "vs": "versus", "svc": "service",
    "mgr": "manager", "amt": "amount", "msg": "message", "pmt": "payment", "mtg": "meeting", "ppl": "people",
    "pls": "please", "plz": "please", "thx": "thanks", "attn": "attention", "pts": "points", "qty": "quantity",
    "qtr": "quarter", "appt": "appointment", "dept": "department", "approx": "approximately",
    "asst": "assistant", "pkg": "package", "incl": "including", "excl": "excluding",
    "addr": "address", "govt": "government", "txn": "transaction",
    "recd": "received", "rec'd": "received", "req'd": "required", "thru": "through",
    "rm": "room", "int'l": "international", "nat'l": "national", "gov't": "government",
    "add'l": "additional", "btwn": "between", "lvl": "level", "freq": "frequency", "fwd": "forward",
    "wkdays": "weekdays", "wkends": "weekends",
    "blk": "block", "blks": "blocks", "hrs": "hours", "mins": "minutes", "secs": "seconds", "wks": "weeks", "mos": "months",
    "aff'd": "affirmed", "rev'd": "reversed", "cont'd": "continued", "recv'g": "receiving",
    "del'y": "delivery", "dep't": "department", "sec'y": "secretary", "ass'n": "association", "comm'n": "commission",
    "gnd": "ground", "mph": "miles per hour",
    "dbl": "double", "gtt": "drop", "gtts": "drops", "chars": "characters", "sgl": "single",
    "xfer": "transfer", "xfers": "transfers", "b'day": "birthday",
    "hols": "holidays", "yrs": "years", "lbs": "pounds", "dims": "dimensions", "tkt": "ticket",
    "avg": "average", "mkt": "market", "ctns": "cartons", "tbsp": "tablespoon",
    "tsp": "teaspoon", "txt": "text", "b4": "before", "qd": "daily", "qhs": "every night at bedtime",
    "qod": "every other day",
    "qam": "every morning", "qpm": "every evening",
}  # fmt: skip
CHAT_WORDS |= {
    f"{short}s": plural(CHAT_WORDS[short])
    for short in ("appt", "dept", "mgr", "pkg", "amt", "msg", "txn", "pmt", "rm", "tkt")
}
"""Short forms that are spoken in full without a stop."""
_SLASHED = {
    "c/o": "care of", "C/O": "care of", "b/c": "because", "b/w": "between", "b/t": "between", "n/a": "N A",
    "w/d": "withdrawal", "d/c": "discontinue",
    "c/b": "callback", "C/B": "callback", "f/u": "follow-up", "F/U": "follow-up", "p/u": "pickup", "P/U": "pickup",
    "d/t": "due to", "w/in": "within", "w/i": "within", "a/k/a": "A K A", "d/b/a": "D B A", "f/k/a": "F K A",
    "s/n": "serial number", "S/N": "serial number", "p/n": "part number", "P/N": "part number", "n/c": "no charge",
    "r/o": "rule out", "h/o": "history of", "s/p": "status post", "c/w": "consistent with", "o/b/o": "on behalf of",
}  # fmt: skip
_SPELLED = (
    "ACH|Rx|ADA|AE|ANI|BAA|BOS|COB|COPD|DOB|DOH|DOT|EFT|GIS|LAX|LOA|LOB|MMS|MOA|NA|OB|PHI|PIA|PO|POA|POS|PSI|SAR|SOP|TAT"
    "|TOS|UPS"
)
"""Acronyms that are said letter by letter and that hibari's lexicon and rules read as words, alone or in a sentence (of 440
that were tried); the others it spells itself, or they are words (PIN, HIPAA, HVAC).
"""
_PATIENT = (
    r"([Pp])t\b(?<=\b.t)(?<!\d .t)\.?(?='s\b|\s(?:c/o|denie[ds]|reports|states|is|was|has|had|presents|presented|tolerated"
    r"|advised|instructed|will|should|needs|complains|admitted|arrived|requests?|called|seen)\b)"
)
_OF_PATIENT = {"H": "history", "D": "diagnosis", "S": "symptoms"}
_COMPLAINS = re.compile(r"[Pp]atient $|\byear old\b[^.;]*$")
_POPULATION = (
    r"([Pp])op\.(?<=\b.op\.)(?:(?=\s(?:of|about|under|over|is|was)\b|\s\d[\d,.]{2}|:)"
    r"|(?<=\bthe .op\.)(?=\s[a-z]|[,;)])|(?<=percent of the .op\.))"
)
"""The word for a sound may end a sentence: until you hear the pop."""
_TABLETS = r"(tab|cap)(?:(?<=\d .a.)|(?<=grams .a.)|(?<=\bone .a.))(s?)\b(?:\.(?!\s?[A-Z][a-z]))?"
_TAKEN = re.compile(
    r"\b(?:take|mg|milligrams?|mcg|rx|dose|p\s?o|prn|daily|q\s?d|[btq]\s?i\s?d|q\d{1,2}h?|by mouth|bottles?|refills?)\b|#\d",
    re.IGNORECASE,
)
_OF_BROWSER = re.compile(r"\b(?:browser|window|page|open|close|click|switch)\b", re.IGNORECASE)
_OF_RADIO = re.compile(r"\b(?:Wi-?Fi|SSID|TV|radio|VHF|UHF|router|[25] ?GHz|broadcast)\b", re.IGNORECASE)
_LETTER_OF_PART = r"(?!I\b|A\s(?!(?:and|or|of|to|is|was|at|in|for|on|shows)\b)[a-z])"
"""A sentence may begin with "I" or "A" behind "term." and "ex."; a part has such a letter before another word."""
_COUNTED_TIMES = r"\s(?:night|day|week|month|year|hour|person|people|guest|unit|item)s?\b"
_IS_CALLED = re.compile(r"\b(?:call|dial|reach|contact|ask|phone|ext|extension|transfer|desk)\b", re.IGNORECASE)
_COUNT_BEFORE = re.compile(r"(?:\d|\b(?:per|one|half))[\s-]?$", re.IGNORECASE)
_SEVERAL_BEFORE = re.compile(r"(?:[2-9]|\d{2}|,\d{3})\s$")
_COUNTED_NOUNS = frozenset(
    {
        "cust",
        "pkg",
        "acct",
        "appt",
        "pmt",
        "pymt",
        "tkt",
        "veh",
        "bldg",
        "rep",
        "inv",
        "loc",
        "dept",
        "rm",
        "apt",
        "mtg",
        "lic",
        "cert",
        "grp",
        "ref",
        "rpt",
        "agmt",
        "hrg",
    }
)
_ACRONYMS_TOO = frozenset({"blt", "cr", "eq", "plt", "occ", "vis", "rpt", "ck"})
"""In capitals these are something else: I want a BLT."""
_WORDS_OF_THEIR_OWN = frozenset({"reps", "refs"})
"""They end a sentence of sports."""
_DOSE = re.compile(r"\b(?:(?:milli|micro)?grams?|milliliters?|tablets?|capsules?|units?|drops?|P\s?O)\b")
_ROMAN_NUMBER = r"(?!I\s(?!of\b|[§&]))(?:[IVX]{1,6}|[ivx]{2,6})\b"  # "I" before a word may be who speaks
_AFTER_HOUSE_NUMBER = re.compile(r"\b[\w-]+\s(?:[A-Z]\w*\s){1,3}$")
_STREET_NAME = re.compile(r"(?:\d\w*|[A-Z]\w*)\s$")
_STREET_INSIDE_SENTENCE = re.compile(
    r"[\w,]\s(?!(?:Mount|Port|Fort|Lake|Downtown|North|South|East|West|Mister|Miz|Missus|Doctor|Judge)\s)[A-Z]\w*\s$|\d\w*\s$"
)
_NEXT_IS_SAINT = re.compile(
    r"\s(?:Andrew|Ann|Augustine|Charles|Clair|Cloud|Croix|Francis|George|James|Joe|John|Joseph|Jude|Kitts|Louis|Lucia|Luke"
    r"|Mark|Martin|Mary|Michael|Patrick|Paul|Peter|Petersburg|Pierre|Thomas|Vincent)s?\b"
)
_NEXT_IS_NAME = re.compile(r"\s[A-Z]\w+")
_PER_WORDS = {
    symbol: one
    for symbol, one in SINGULARS.items()
    if len(symbol) > 1 and symbol[0] != "°" and " per " not in one and symbol != "cc"
} | {
    "ppl": "person", "pp": "person", "pax": "passenger", "sem": "semester", "qtr": "quarter", "sh": "share",
}  # fmt: skip
_PROFESSIONS = (
    "Director|Manager|Mgr|VP|Vice|Engineer|Analyst|Account|Associate|Project|Product|Advisor|Agent|Consultant|Specialist|Developer"
    "|Designer|Counsel|Executive"
)
_PERIODS = {"w": "week", "m": "month", "q": "quarter", "y": "year"}
_PER_LETTERS = {"p": "person", "a": "annum", "w": "week", "c": "calendar month"}
_SHORT_PER = "|".join(map(re.escape, sorted(_PER_WORDS, key=len, reverse=True)))
_PER = (
    rf"(?:(?<=[\w.])\s?/\s?|\bper\s)(?:(?P<short>{_SHORT_PER})(?!\w)\.?"
    r"|(?P<full>square foot|gallon|pound|mile|second|minute|hour|day|week|month|year|person|night|unit|item)\b)"
)
_COUNTED_UNITS = grouped(
    "|".join(
        sorted(
            {"dollar", "dollars", "cent", "cents", "euros", "percent"} | {many.split()[-1] for many in PLURALS},
            key=len,
            reverse=True,
        )
    )
)
_COUNT = r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|[a-z]+teen|[a-z]+ty(?:-[a-z]+)?)\b"
_COUNTED_PER = (
    r"(\b\d[\d,.]{0,9}\s[a-z]{2,20}s)\s?/\s?"
    r"(?=[a-z]{3,20}(?<!s)(?![\w/])|\d{1,3}\s?(?:h|hrs?|hours?|days?|weeks?|months?)\b)"
)
"""Eight sprays/24 hours, two bags/passenger."""
_LOOK_BACK_CHARACTERS = 60
_DIGIT = "(?:zero|one|two|three|four|five|six|seven|eight|nine)"
_GOES_ON = re.compile(
    rf"\s?[#:;,]|\s{_DIGIT}\s{_DIGIT}\b|\s(?:Mon|Tues?|Wed|Thur?s?|Fri|Sat|Sun)(?:[a-z]{{0,3}}day)?\b"
)
"""No sentence begins with these."""
_BEGINS = re.compile(rf"\s*$|\s+(?:{BEGINS_SENTENCE.pattern})")


def label(short: str) -> str | None:
    """The word that a short form before a number stands for: ``Txn 4471``."""
    written = short.lower()
    said = _NEVER_LAST.get(written) or _WORDS.get(written) or CHAT_WORDS.get(written)
    return said or (None if written in common_words() else written_out(written, may_be_cut=True))


def _word(match: re.Match[str]) -> str | None:
    written = match[1].lower()
    if match[1].isupper() and written in _ACRONYMS_TOO:
        return None
    if written in _ONLY_CAPITALISED and not match[1][0].isupper():
        return None
    is_hour = _COUNT_BEFORE.search(match.string, max(0, match.start() - 8), match.start())
    if not is_hour and (match[1] == "HR" or (match[1] == "Hr" and _NEXT_IS_NAME.match(match.string, match.end()))):
        return None  # of human resources, or a German gentleman
    if written.endswith("s") and (one := written[:-1]) in _COUNTED_NOUNS and written not in _WORDS_OF_THEIR_OWN:
        return plural(_NEVER_LAST.get(one) or _WORDS[one]) + kept_stop(match)
    if written in _COUNTED_NOUNS and _SEVERAL_BEFORE.search(match.string, max(0, match.start() - 12), match.start()):
        return plural(_NEVER_LAST.get(written) or _WORDS[written]) + kept_stop(match)
    if written in _NEVER_LAST:
        return _NEVER_LAST[written] + ("." if match.end() == len(match.string) else "")
    said = _WORDS.get(written) or CHAT_WORDS.get(written)
    return said + kept_stop(match) if said else _short_for(match)


def _short_for(match: re.Match[str]) -> str | None:
    """The word that is written short with this full stop; a word or a name may be the last of its sentence."""
    goes_on, is_last = _GOES_ON.match(match.string, match.end()) is not None, ends_sentence(match)
    if match[1].isupper() or (
        not goes_on and (match[1].lower() in common_words() or (match[1][0].isupper() and is_last))
    ):
        return None
    said = written_out(match[1], may_be_cut=goes_on or not is_last)
    return said and said + ("." if is_last and _BEGINS.match(match.string, match.end()) else "")


def _population(match: re.Match[str]) -> str:
    return f"{match[1]}opulation" + kept_stop(match)


def _tablets(match: re.Match[str]) -> str | None:
    """``2 tabs`` of a medicine; those of a browser are tabs."""
    if not _TAKEN.search(match.string) or _OF_BROWSER.search(match.string):
        return None
    return f"{'tablet' if match[1] == 'tab' else 'capsule'}{match[2]}"


def _slashed(match: re.Match[str]) -> str:
    """``w/in`` as "within", and a patient's ``c/o`` as "complains of"."""
    is_complaint = match[1] == "c/o" and _COMPLAINS.search(match.string, max(0, match.start() - 40), match.start())
    return "complains of" if is_complaint else _SLASHED[match[1]]


def _per(match: re.Match[str]) -> str:
    return f" per {match['full'] or _PER_WORDS[match['short']]}{kept_stop(match)}"


def _times(match: re.Match[str]) -> str | None:
    """``milk x2`` as "milk times two"; "call billing x22" has an extension."""
    counts = len(match[1]) == 1 or re.match(_COUNTED_TIMES, match.string[match.end() :])
    return None if not counts and _IS_CALLED.search(match.string, 0, match.start()) else f" times {match[1]}"


def _by_place(match: re.Match[str], before_name: str, after_name: str) -> str | None:
    """Saint John, Doctor Smith, but 12 Elm Street and Elm Drive: a name behind decides, unless it ends an address."""
    before = match.string[max(0, match.start() - _LOOK_BACK_CHARACTERS) : match.start()]
    in_address, next_is_name = _in_address(before), _NEXT_IS_NAME.match(match.string, match.end())
    if before_name == "Saint" and not in_address and _NEXT_IS_SAINT.match(match.string, match.end()):
        return before_name
    is_street = in_address or (after_name == "Street" and _STREET_INSIDE_SENTENCE.search(before))
    if next_is_name and not is_street:
        return before_name
    if not match.group().endswith("."):
        return after_name if in_address else None
    if not _STREET_NAME.search(before):
        return before_name
    return f"{after_name}," if next_is_name and in_address else after_name + kept_stop(match)


def _in_address(before: str) -> bool:
    return bool(_AFTER_HOUSE_NUMBER.search(before)) and any(character.isdigit() for character in before[-30:])


def _dotted_letters(match: re.Match[str]) -> str:
    is_last = _BEGINS.match(match.string, match.end())
    return " ".join(match.group().replace(".", "")) + ("." if is_last else "")


say_abbreviations = in_order(
    (
        rf"\b({'|'.join(_TITLES)})\.(?=\s?[A-Z]|\s(?:d[aeiou]s?|del|dos|l[ae]|v[ao]n|al|bin|ter)\s[a-zA-Z])",
        lambda match: _TITLES[match[1]],
    ),
    (r"\b(Mr|Mrs|Ms)\b(?:\.(?=\s?(?:and|or|&|/)\s?[A-Z])|(?=\s[A-Z]))", lambda match: _TITLES[match[1]]),
    (rf"\b({'|'.join(_STATES)})\.(?!\w)", lambda match: _STATES[match[1]] + kept_stop(match)),
    (
        rf"\b({'|'.join(_FIRST_NAMES)})(?:\.|(?<=\bWm)|(?<=\bThos)|(?<=\bChas))(?=\s[A-Z])",
        lambda match: _FIRST_NAMES[match[1]],
    ),
    (r"\bDr\b\.?", lambda match: _by_place(match, "Doctor", "Drive")),
    (r"\bst\.(?=[:,;]|\s[a-z])", "street"),
    (r"\bSt\b\.?", lambda match: _by_place(match, "Saint", "Street")),
    (
        r"\b[Cc]h\.\s(?=(\d{3})|\d)",
        lambda match: "channel " if match[1] or _OF_RADIO.search(match.string) else None,
    ),
    (r"(?<=\b[Ss]et )pt\b\.?", "point"),
    (_PATIENT, r"\1atient"),
    (r"\bPt\.(?=\s[a-z])", "Patient"),
    (r"\b([Dd])iff\.(?=\s(?!was\b|has\b|does\b)[a-z]{2,15}s\b)", r"\1ifferent"),
    (r"\b([Ee])xp\.(?=\s(?:of|dates?)\b)", r"\1xpiration"),
    (rf"\b({_COUNTED_UNITS})\s?/\s?(?=\d{{1,3}}\s?(?:hrs?|hours?|days?|weeks?|months?|mo)\b)", r"\1 per "),
    (r"/d\b(?:(?<=dollars/d)|(?<=cents/d)|(?<=\d/d))\.?", " per day"),
    (r"(?<=percent )coins\b\.?", "coinsurance"),
    (
        r"(?=[\s–-])(?:(?<=\b[a-z]\.[a-z]\.)|(?<=\b[a-z]\.[a-z]\.[a-z]\.))\s?[–-]\s?(?=[a-z]\.[a-z]\.)",
        " to ",
    ),
    (
        r"\b([Cc])t\.(?=\s(?:costs?|orders?|ordered|dates?|fees?|case|reporter|clerk|hearing|appearance|appointed)\b)",
        r"\1ourt",
    ),
    (rf"\b([Tt])erm\.\s(?={_LETTER_OF_PART}[A-Z\d](?![\w-])(?!(?<=\d)\s[a-z]+s\b))", r"\1erminal "),
    (rf"\b([Ee])x\.\s(?={_LETTER_OF_PART}[A-Z\d]{{1,3}}(?:-[A-Z\d]{{1,2}})?(?![\w-]))", r"\1xhibit "),
    (
        r"b\.(?<=\bb\.)\s(?=(?:1\d|20)\d\d\b|(?:the [a-z-]+ of )?[A-Z][a-z]{2,8}(?:\s[a-z-]+(?:st|nd|rd|th)|, nineteen)\b)",
        "born ",
    ),
    (r"/ea\b(?:\.(?!\s[A-Z]))?", " each"),
    (r"d\.(?<=\bd\.)\s(?=(?:1\d|20)\d\d\b)", "died "),
    (r"\b([Ss])ch(?:ed)?\.\s(?=(?:[A-Z]|[A-Z]?\d{1,2}|[A-Z]-?\d)(?![\w-]))", r"\1chedule "),
    (
        _POPULATION,
        _population,
    ),
    (_TABLETS, _tablets),
    (
        rf"\b({'|'.join(_NUMBERED_PARTS)}|{_CAPITALISED_PARTS})\.\s?(?=\(?\d|{_ROMAN_NUMBER})",
        lambda match: f"{_NUMBERED_PARTS[match[1].lower()]} ",
    ),
    (
        rf"(?i)\b({grouped('|'.join(sorted(CHAT_WORDS, key=len, reverse=True)))})\b(?!\.|'d\b)",
        lambda match: CHAT_WORDS[match[1].lower()],
    ),
    (r"\b[Nn]os\.(?:\s?(?=#?\d)|\s(?=(?:is|was)\b))", "numbers "),
    (r"\b[Nn]o\.\s(?=(?:is|was)\b)", "number "),
    (r"\b[Nn]o\.(?=:)", "number"),
    (
        r"\b(acct\.?|account|invoice|order|phone|serial|policy|claim|case|tracking|member|customer|reference)\s[Nn]o\.(?=\s*$|[,;)])",
        lambda match: f"{match[1]} number{'.' * (not match.string[match.end() :].strip())}",
    ),
    (r"\bNo\.\s(?=[a-z-]+ [A-Z]\w+ (?:Street|Avenue|Road|Lane|Drive|Square|Place|Court)\b)", "number "),
    (r"\bNo\.\s(?=\d{1,5}(?:\s[A-Z][a-z]|\s(?:is|was|in|on|at|of)\b))", "number "),
    (r"\b([Uu])til\.(?=\s(?:bills?|company|fees?|costs?|rooms?)\b)", r"\1tility"),
    (r"\b([Uu])til\.(?=\s(?:rates?|is|was|of|at)\b)", r"\1tilization"),
    (r"\b([Dd])ep\.(?=\s(?:is|was|times?|gate|airport)\b)", r"\1eparture"),
    (r"\b([Aa])rr\.(?=\s(?:is|was|times?|gate|airport)\b)", r"\1rrival"),
    (r"\b[Bb]al(?=:)", "balance"),
    (r"(?i)\b(?:e\.\s?g|eg)\.(?!\w),?", "for example,"),
    (r"(?i)\b(?:i\.\s?e|ie)\.(?!\w),?", "that is,"),
    (rf"\b(?!dollar|cent|euro)({_COUNTED_UNITS})\s?/\s?(?={_COUNT} (?!hour|day|week|month|year|minute)[a-z])", r"\1, "),
    (_PER, _per),
    (_COUNTED_PER, r"\1 per "),
    (rf"\b({_COUNTED_UNITS})\s?/\s?(?=[a-z]{{3,20}}(?<!s)(?![\w/]))(?!feet\b|[a-z-]+ percent\b)", r"\1 per "),
    (r"\b([Ii])ns\.?(?=\s(?:card|co|policy|info|plan|carrier|provider|company)\b)", r"\1nsurance"),
    (r"(?<![\w/])([wmqy])/\1(?![\w/])", lambda match: f"{_PERIODS[match[1]]} over {_PERIODS[match[1]]}"),
    (r"\bUtd\b\.?", "United"),
    (r"\bJr\b(?!\.)(?=,|\s[A-Z])", "Junior"),
    (r"\bp\.\s?a\.(?!\w)", lambda match: f"per annum{kept_stop(match)}"),
    (
        r"(?=\sx)(?<=[A-Za-z])(?<!\b[Dd]ial)(?<!\b[Cc]all)(?<!\bat)(?<!\bto)(?<!\bor)(?<!\bby)\sx(?!(?:32|64|86)\b)(\d{1,2})(?![\w.])",
        _times,
    ),
    (r"\blg\.(?=\s[a-z])", "large"),
    (r"\b(?:OB(?=/GYN)|TCP(?=/IP)|AC(?=/DC))/", lambda match: f"{' '.join(match.group()[:-1])} "),
    (r"\b[Cc]t\.?\s?[Rr]m\b\.?", "courtroom"),
    (r"\b([Rr])eg\.(?=\s(?:number|plate|fee|card|form)\b)", r"\1egistration"),
    (r"\b([Rr])eg\.(?=\s(?:(?:price|rate|fare|hours|size|[a-z-]+ (?:dollars|pounds|euros))\b|[$£€]))", r"\1egular"),
    (r"\bca\.(?=\s)", "circa"),
    (r"\bnr\.?(?=\s(?:the\b|our\b|[A-Z][a-z]))", "near"),
    (
        r"(?:(?<=dollars)|(?<=pounds)|(?<=euros)|(?<=cents)|(?<=percent))\sp\.?(p|a|w|c\.?m)(?!\w)(\.?)",
        lambda match: f" per {_PER_LETTERS[match[1][0]]}{match[2] and kept_stop(match)}",
    ),
    (r"\b([HDS])x\b", lambda match: _OF_PATIENT[match[1]]),
    (r"\b[Ww]k\.?(?=\s(?:of|[a-z]+-(?:one|two|three|four|five|six|seven|eight|nine))\b)", "week"),
    (r"\b([Cc])onf\.?(?=\s(?:call|room|line|bridge)\b)", r"\1onference"),
    (r"(?<=\d(?:st|nd|rd|th)) [Ff]lr?\b(?!\.)|\bFlr?(?=\s\d)", " floor "),
    (
        r"(?i)(?<!\w)((?:an?|one|this|next|last|past|every|each|half an?)\s)((?-i:yr|wk|hr|mo))\b\.?(?![-/])",
        lambda match: f"{match[1]}{_PER_WORDS[match[2].lower()]}{kept_stop(match)}",
    ),
    (r"\brev\.?\s?(?=[A-Z]\b|\d)", "revision "),
    (r"\b([Ee])rr\b\.?(?=\s(?:codes?|msgs?|no|number|zero)\b|\s?#|\s\d)", r"\1rror"),
    (r"\b[Ee]st\.(?=\s[a-z])", "estimated"),
    (r"\best\.(?=\s\d)", "established"),
    (r"\b([Ii]n|[Ee]x)cl\.?(?=\s?[,;)!?]|\.?$)", r"\1cluded"),
    (rf"\bSr\.(?=\s(?:{_PROFESSIONS})\b)", "Senior"),
    (r"\b([A-Za-z']{2,8})\.(?!\w)", _word),
    (CONTRACTED, contracted),
    (r"\b([A-Za-z]{3,7})'d\b", lambda match: done(match[1])),
    *ROMAN_RULES,
    (rf"(?=[A-Za-z]/)(?<![\w/])({'|'.join(_SLASHED)})(?![\w/])", _slashed),
    (
        rf"(?<=[A-Za-z])\s[x×]\s(\d{{1,2}}(?![\w:/-]|\.\d)|\d{{3,4}}(?={_COUNTED_TIMES}))",
        _times,
    ),
    (r"(?<!\w)w/o(?!\w)", "without "),
    (r"(?<!\w)w/(?=\s?\w|\s|$)", "with "),
    (r"(?<![\w.])(?:[A-Za-z]\.){2,8}(?!\w)", _dotted_letters),
    (
        r"\b[BTQ]ID\b",
        lambda match: (
            " ".join(match.group()) if _DOSE.search(match.string, max(0, match.start() - 40), match.start()) else None
        ),
    ),
    (r"(?<=\d)([A-Z]{2,3})(?![\w'’-])", lambda match: f" {' '.join(match[1])}"),  # 2FA, 3PL
    (rf"(?<![\w&.-])(?:{_SPELLED})(?![\w&])", lambda match: " ".join(match.group().upper())),
)
"""Abbreviations in words. The full stop of one that also ends a sentence is kept."""
