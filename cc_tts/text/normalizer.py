"""Written text to the words that are said: numbers, money, dates, telephone and card numbers, units, symbols.

English by the rules in ``en/``, Chinese by wetext and the rules in ``zh/``. In text of other
languages only signs and dates become words, because espeak-ng says the numbers of its own languages.
"""

from cc_tts.text.characters import clean, has_speech
from cc_tts.text.en import speakable as en
from cc_tts.text.en.numbers import with_and
from cc_tts.text.language import detect_language, rule_set, says_yao, writes_day_first
from cc_tts.text.markup.markdown import MarkupStripper
from cc_tts.text.others.signs import say_signs
from cc_tts.text.sentences import common_words
from cc_tts.text.zh import speakable as zh


class Normalizer:
    """Makes text speakable. The first text compiles the rules and the first Chinese one with what they do not know loads
    wetext, which takes part of a second: call :meth:`warm_up` at start.
    """

    def warm_up(self) -> None:
        """Load what would otherwise be loaded by the first text. Blocks; call it in a thread."""
        zh.warm_up()
        zh.speakable("您好，请拨打400-800-1234。")
        self.load_english()

    def load_english(self) -> None:
        """Load the words of English and of other languages, and compile the rules for English and for markup."""
        common_words()
        detect_language("Hello")
        MarkupStripper().strip("")
        for day_first in (False, True):
            en.speakable("Call 1-800-555-0199 on 11/20/2026.", day_first=day_first)

    def normalize(self, text: str, language: str | None) -> str:
        """The words to be said, on one line; empty when nothing can be said. Never raises, whatever the text.

        ``language`` is a BCP 47 tag; without one the script of the text decides between English and Chinese.
        """
        if not has_speech(text):
            return ""
        tag = language or detect_language(text)
        spoken = _spoken(clean(text), tag)
        return spoken if has_speech(spoken) else ""


def _spoken(cleaned: str, tag: str) -> str:
    match rule_set(tag):
        case "en" if writes_day_first(tag):
            return with_and(en.speakable(cleaned, day_first=True))
        case "en":
            return en.speakable(cleaned)
        case "zh":
            spoken = zh.speakable(cleaned)
            return spoken if says_yao(tag) else spoken.replace("幺", "一")
    return " ".join(say_signs(cleaned, tag).split())
