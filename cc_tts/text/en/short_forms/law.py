"""Courts, rules and reporters as lawyers cite them: "Ninth Circuit", "Federal Rule of Civil Procedure", "F third"."""

import re

from cc_tts.text.en.numbers import ordinal
from cc_tts.text.substitution import in_order, kept_stop

_RULES = {
    "Civ": "Civil Procedure", "Crim": "Criminal Procedure", "App": "Appellate Procedure", "Bankr": "Bankruptcy Procedure",
    "Evid": "Evidence",
}  # fmt: skip
_COURTS = {
    "Ct. App.": "Court of Appeals", "App. Div.": "Appellate Division", "App. Ct.": "Appellate Court",
    "Super. Ct.": "Superior Court", "Sup. Ct.": "Supreme Court", "Dist. Ct.": "District Court", "Cir. Ct.": "Circuit Court",
    "Fam. Ct.": "Family Court", "Bankr. Ct.": "Bankruptcy Court", "Mun. Ct.": "Municipal Court",
    "Ct. Cl.": "Court of Claims",
}  # fmt: skip
_COURT = "|".join(re.escape(court).replace(r"\ ", r"\s") for court in _COURTS)
_PARTIES = {"Def": "Defendant", "Pl": "Plaintiff", "Pltf": "Plaintiff", "Resp": "Respondent", "Pet": "Petitioner"}
_ACTS = (
    "shall|must|may|will|moves|moved|files|filed|pleads|pled|pleaded|appears|appeared"
    "|waives|waived|admits|denies|denied|is|was|has"
)
_SECOND_OR_THIRD = {"2d": "second", "3d": "third", "4th": "fourth"}


def _rule(match: re.Match[str]) -> str:
    """``Fed. R. Civ. P.`` in full, also of more than one rule."""
    name = "Rules" if match["many"] else "Rule"
    return f"Federal {name} of {_RULES[match['kind']]}"


def _reporter(match: re.Match[str]) -> str:
    """``F.3d`` as "F third"."""
    return f"{' '.join(re.findall(r'[A-Za-z]+', match['name']))} {_SECOND_OR_THIRD[match['series']]}"


def _regulation(match: re.Match[str]) -> str:
    return f"{'Treasury ' if match.group()[0] == 'T' else ''}Regulation "


_CITED = re.compile(
    rf"\b(?:Fed|R|B|Cir|Ct|Div|Cong|Sess|[Mm]ot|Ind|Reg|Prob|{'|'.join(_PARTIES)})\.|\dd\b|(?:[A-Z]\.|Supp\.|Rptr\.)\s?[234](?:d|th)\b"
)
"""Few texts have any of it."""
_CIRCUIT = (
    r"((?:\d(?:st|nd|rd|th)|second|third|\bD\.\s?C\.|\bFed\.)\s)Cir\b\.?"
    r"(?=\s(?:19|20)\d\d\b|\s(?:ruling|rule[ds]|court|judges?|opinion|held|decision|affirmed|reversed|case)\b|['’]s|\)|,\s\d)"
)
_say_citations = in_order(
    (rf"\bFed\.\sR(?P<many>s)?\.\s(?P<kind>{'|'.join(_RULES)})\.(?:\sP\.)?(?!\w)", _rule),
    (
        r"(?<![\w.])(?P<name>(?:[A-Z]\.\s?){1,2}|So\.\s|(?:F\.\s)?Supp\.\s|Rptr\.\s|L\.\sEd\.\s)(?P<series>2d|3d|(?<=F\.)4th)(?=\s|$)",
        _reporter,
    ),
    (
        r"(?<![\w.])(\d{0,3}[23])d(?=\s(?:Cir|Dist|Dept|Dep't|Sess|Cong|[Ee]d)\b)",
        lambda match: ordinal(int(match[1])),
    ),
    (
        _CIRCUIT,
        lambda match: f"{match[1].replace('Fed.', 'Federal')}Circuit{kept_stop(match)}",
    ),
    (r"(?<=\d(?:st|nd|rd|th) )Cong\.(?=,|\s|$)", lambda match: f"Congress{kept_stop(match)}"),
    (r"(?:(?<=\d(?:st|nd) )|(?<=second )|(?<=third ))Sess\.", lambda match: f"Session{kept_stop(match)}"),
    (rf"\b(?:{_COURT})", lambda match: _COURTS[" ".join(match.group().split())]),
    (
        rf"\b({'|'.join(_PARTIES)})\.(?='s\b|\s(?:{_ACTS})\b)",
        lambda match: _PARTIES[match[1]],
    ),
    (r"\b([Mm])ot\.(?=\s(?:to|for|in)\b)", r"\1otion"),
    (r"\bProb\.(?=\s(?:No|Ct|Code)\b)", "Probate"),
    (r"\b(?:Treas\.\s(?=Reg))?Reg\.\s(?=[A-Z]{1,2}(?![\w.])|sections?\s)", _regulation),
    (r"\bInd\.\sNo\.", "Indictment number"),
)


def say_law(text: str) -> str:
    """Citations and dockets in words."""
    return _say_citations(text) if _CITED.search(text) else text
