"""What English text sounds like on the telephone, class by class."""

import pytest

from cc_tts.text.normalizer import Normalizer

pytestmark = pytest.mark.unit

CASES = {
    "cardinal": [
        ("You have 5 items", "You have five items"),
        ("1234 dollars", "one thousand two hundred thirty-four dollars"),
        ("1,234,567 people", "one million two hundred thirty-four thousand five hundred sixty-seven people"),
        ("It is -5 outside", "It is minus five outside"),
        ("pi is 3.14", "pi is three point one four"),
        ("0.5 and .5", "zero point five and point five"),
        ("agent 007", "agent zero zero seven"),
        ("1.5.3", "one point five point three"),
        ("192.168.1.10", "one nine two dot one six eight dot one dot one zero"),
        ("iPhone15, MP3 and COVID-19", "iPhone fifteen, MP three and COVID-nineteen"),
        ("10k users and 5M calls", "ten thousand users and five million calls"),
        ("2+2=4", "two plus two equals four"),
    ],
    "ordinal": [
        ("1st", "first"),
        ("2nd floor", "second floor"),
        ("the 3rd of 4", "the third of four"),
        ("21st", "twenty-first"),
        ("112th", "one hundred twelfth"),
        ("1,000th caller", "one thousandth caller"),
    ],
    "money": [
        ("$12", "twelve dollars"),
        ("$1", "one dollar"),
        ("$1,234.56", "one thousand two hundred thirty-four dollars and fifty-six cents"),
        ("$1.01", "one dollar and one cent"),
        ("$0.99", "ninety-nine cents"),
        ("99¢", "ninety-nine cents"),
        ("£5", "five pounds"),
        ("£1.50", "one pound and fifty pence"),
        ("€3.50", "three euros and fifty cents"),
        ("¥500", "five hundred yen"),
        ("USD 20", "twenty US dollars"),
        ("20 EUR", "twenty euros"),
        ("$3M", "three million dollars"),
        ("$2.5 million", "two point five million dollars"),
        ("-$5", "minus five dollars"),
        ("$10-$20", "ten to twenty dollars"),
        ("$5/month or $9/mo. only", "five dollars per month or nine dollars per month only"),
        ("We take $ or €.", "We take dollars or euros."),
    ],
    "date": [
        ("2026-11-20", "November twentieth, twenty twenty-six"),
        ("2026-11-20T14:30:00Z", "November twentieth, twenty twenty-six at fourteen thirty U T C"),
        ("11/20/2026", "November twentieth, twenty twenty-six"),
        ("20/11/2026", "the twentieth of November, twenty twenty-six"),
        ("20.11.2026", "the twentieth of November, twenty twenty-six"),
        ("Nov 20, 2026", "November twentieth, twenty twenty-six"),
        ("Nov. 5", "November fifth"),
        ("20 November", "the twentieth of November"),
        ("the 20th of November 2026", "the twentieth of November, twenty twenty-six"),
        ("Nov 20-22", "November twentieth to twenty-second"),
        ("due on 11/20", "due on November twentieth"),
        ("In May 2026 you may 5", "In May twenty twenty-six you may five"),
        ("Mon-Fri", "Monday to Friday"),
        ("Mon., Nov 23", "Monday, November twenty-third"),
        ("the 1990s", "the nineteen nineties"),
        ("the 90s", "the nineties"),
    ],
    "year": [
        ("in 2026", "in twenty twenty-six"),
        ("since 1885", "since eighteen eighty-five"),
        ("1999", "nineteen ninety-nine"),
        ("1900", "nineteen hundred"),
        ("1905", "nineteen oh five"),
        ("2005", "two thousand five"),
        ("1990-1995", "nineteen ninety to nineteen ninety-five"),
        ("2026 points", "two thousand twenty-six points"),
    ],
    "time": [
        ("14:30", "fourteen thirty"),
        ("2:05 pm", "two oh five P M"),
        ("9am", "nine A M"),
        ("12:00", "twelve o'clock"),
        ("17:00", "seventeen hundred"),
        ("00:00", "midnight"),
        ("12:30:15", "twelve hours thirty minutes and fifteen seconds"),
        ("at 9 a.m. sharp", "at nine A M sharp"),
        ("at 9 a.m. Please wait.", "at nine A M. Please wait."),
        ("9am-5pm", "nine A M to five P M"),
        ("9:00-17:30", "nine o'clock to seventeen thirty"),
        ("open 24/7", "open twenty-four seven"),
        ("won 3:2", "won three to two"),
    ],
    "telephone": [
        ("+1 (415) 555-0123", "plus one, four one five, five five five, zero one two three"),
        ("+14155550123", "plus one, four one five, five five five, zero one two three"),
        ("1-800-555-0199", "one, eight zero zero, five five five, zero one nine nine"),
        ("(800) 555-0199", "eight zero zero, five five five, zero one nine nine"),
        ("415.555.0123", "four one five, five five five, zero one two three"),
        ("2025550123", "two zero two, five five five, zero one two three"),
        ("555-0123", "five five five, zero one two three"),
        ("555-0123 ext. 42", "five five five, zero one two three, extension four two"),
        ("+44 20 7946 0958", "plus four four, two zero, seven nine four six, zero nine five eight"),
        ("1-800-FLOWERS", "one, eight zero zero, FLOWERS"),
        ("Call 911.", "Call nine one one."),
    ],
    "identifier": [
        ("4111 1111 1111 1111", "four one one one, one one one one, one one one one, one one one one"),
        ("4111111111111111", "four one one one, one one one one, one one one one, one one one one"),
        ("3782 822463 10005", "three seven eight two, eight two two four six three, one zero zero zero five"),
        ("1234567", "one two three, four five six seven"),
        ("account 12345", "account one two three four five"),
        ("Your PIN is 0042", "Your PIN is zero zero four two"),
        ("code: 482913", "code: four eight two nine one three"),
        ("confirmation number AB12CD34", "confirmation number A B one two C D three four"),
        ("reference #998", "reference number nine nine eight"),
        ("ticket 4521", "ticket four five two one"),
        ("zip 94105-1234", "zip nine four one zero five, one two three four"),
        ("card ending in 4321", "card ending in four three two one"),
        ("xxxx-4321", "ending in four three two one"),
        ("ORD-2026-0001", "O R D, two zero two six, zero zero zero one"),
        ("123-45-6789", "one two three, four five, six seven eight nine"),
        ("Springfield, CA 94105", "Springfield, California nine four one zero five"),
        ("Room 204, Suite 1200", "Room two oh four, Suite twelve hundred"),
        ("Text PAY to 72727", "Text PAY to seven two seven two seven"),
        ("order #A-10293", "order number A, one zero two nine three"),
        ("I order 12 pizzas", "I order twelve pizzas"),
        ("order #1234567 arrived", "order number one two three, four five six seven arrived"),
    ],
    "percent": [
        ("5%", "five percent"),
        ("5.5 %", "five point five percent"),
        ("100%", "one hundred percent"),
        ("-5%", "minus five percent"),
        ("10-20%", "ten to twenty percent"),
        ("1,000%", "one thousand percent"),
    ],
    "unit": [
        ("5 km", "five kilometers"),
        ("1 kg", "one kilogram"),
        ("10kg", "ten kilograms"),
        ("72°F", "seventy-two degrees Fahrenheit"),
        ("-5℃", "minus five degrees Celsius"),
        ("5GB", "five gigabytes"),
        ("60 mph", "sixty miles per hour"),
        ("20 m²", "twenty square meters"),
        ("30s", "thirty seconds"),
        ("6'2\"", "six feet two inches"),
        ("a 5-km run", "a five-kilometer run"),
        ("2x4", "two by four"),
    ],
    "abbreviation": [
        ("Dr. Smith and Mr. Jones", "Doctor Smith and Mister Jones"),
        ("Mrs. Lee", "Missus Lee"),
        ("123 Main St. Springfield", "one twenty-three Main Street, Springfield"),
        ("Visit St. Louis", "Visit Saint Louis"),
        ("on Elm St. and Oak Ave.", "on Elm Street and Oak Avenue."),
        ("No. 5", "number five"),
        ("No. I said", "No. I said"),
        ("approx. 5, etc.", "approximately five, et cetera."),
        ("e.g. this, i.e. that", "for example, this, that is, that"),
        ("Acme Inc. vs. Foo Ltd.", "Acme Incorporated versus Foo Limited."),
        ("w/ milk w/o sugar", "with milk without sugar"),
        ("the U.S. market", "the U S market"),
        ("NASA and IBM", "NASA and IBM"),
        ("Louis XIV", "Louis the fourteenth"),
    ],
    "fraction": [
        ("1/2", "one half"),
        ("3 1/2", "three and a half"),
        ("3/4", "three quarters"),
        ("2/3", "two thirds"),
        ("5/8", "five eighths"),
        ("½ and 3½", "one half and three and a half"),
        ("1/0", "one over zero"),
        ("85/100", "eighty-five out of one hundred"),
        ("4.5/5", "four point five out of five"),
    ],
    "range": [
        ("9-5", "nine to five"),
        ("10–20", "ten to twenty"),
        ("1-2 days", "one to two days"),
        ("10 - 20", "ten to twenty"),
        ("5-3=2", "five minus three equals two"),
        ("5-10 km", "five to ten kilometers"),
    ],
    "address": [
        ("john.smith@example.com", "john dot smith at example dot com"),
        ("Mail a_b-c+d@x.de!", "Mail a underscore b dash c plus d at x dot D E!"),
        ("agent7@example.com", "agent seven at example dot com"),
        ("https://www.example.com/pay?id=1.", "w w w dot example dot com slash pay question mark id equals one."),
        ("example.co.uk", "example dot co dot U K"),
        ("go to example.com.", "go to example dot com."),
    ],
    "sign": [
        ("AT&T", "AT and T"),
        ("Press # or *.", "Press pound or star."),
        ("the # key", "the pound key"),
        ("#5", "number five"),
        ("me @ home", "me at home"),
        ("C++ = fun", "C plus plus equals fun"),
        ("and/or his/her", "and or his slash her"),
        ("~20 & 30 < 40", "about twenty and thirty less than forty"),
        ("A — B - C", "A, B, C"),
        ("**bold** _text_ `code`", "bold text code"),
    ],
    "removed": [
        ("Hello 😀 there 👍🏽", "Hello there"),
        ("family 👨‍👩‍👧!", "family!"),
        ("zero\u200bwidth", "zerowidth"),
        ("a\x00b\x07c", "a b c"),
        ("lone \ud800 surrogate", "lone surrogate"),
        ("flag 🇩🇪 key 1️⃣", "flag key one"),
        ("Acme™ ®", "Acme"),
        ("two\n\nparts\nhere", "two. parts here"),
    ],
    "script": [
        ("３４ and ۱۲", "thirty-four and twelve"),
        ("①", "one"),
        ("Ask for 张伟 at desk 3", "Ask for 张伟 at desk three"),
        ("x²", "x squared"),
        ("№ 5", "number five"),
        ("“quoted” ‘it’s’", "“quoted” 'it's'"),
    ],
}


@pytest.mark.parametrize(("written", "spoken"), [case for cases in CASES.values() for case in cases])
def test_english(normalizer: Normalizer, written: str, spoken: str) -> None:
    assert normalizer.normalize(written, "en-US") == spoken


@pytest.mark.parametrize("cases", CASES.values(), ids=CASES.keys())
def test_every_class_has_at_least_six_cases(cases: list[tuple[str, str]]) -> None:
    assert len(cases) >= 6


def test_a_whole_prompt(normalizer: Normalizer) -> None:
    written = (
        "Hello Mr. Jones, your order #48213 of $1,234.56 ships on 11/20/2026 at 2:30 pm. "
        "Call +1 (415) 555-0123 or press 1."
    )
    assert normalizer.normalize(written, None) == (
        "Hello Mister Jones, your order number four eight two one three of one thousand two hundred thirty-four "
        "dollars and fifty-six cents ships on November twentieth, twenty twenty-six at two thirty P M. "
        "Call plus one, four one five, five five five, zero one two three or press one."
    )


@pytest.mark.parametrize(
    ("tag", "spoken"),
    [
        ("en-US", "March fourth, twenty twenty-six"),
        ("en-GB", "the third of April, twenty twenty-six"),
        ("en", "March fourth, twenty twenty-six"),
    ],
)
def test_the_region_decides_what_a_date_of_numbers_means(normalizer: Normalizer, tag: str, spoken: str) -> None:
    assert normalizer.normalize("3/4/2026", tag) == spoken
