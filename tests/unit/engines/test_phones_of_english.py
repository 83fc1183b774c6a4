"""IPA as tokens of the CMU dictionary's phones, which CosyVoice3 speaks."""

import pytest

from cc_tts.engines.cosyvoice.model.special_tokens import SPECIAL_TOKENS
from cc_tts.engines.phonemes import to_cmu

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("ipa", "phones"),
    [
        ("həˈloʊ", "[HH][AH0][L][OW1]"),
        ("ˈnaɪɡəɹ", "[N][AY1][G][ER0]"),
        ("t͡ʃɪˈkɑːɡoʊ", "[CH][IH0][K][AA1][G][OW0]"),
        ("ˌʌndəˈstænd", "[AH2][N][D][AH0][S][T][AE1][N][D]"),
        ("ˈbʌtn̩", "[B][AH1][T][AH0][N]"),
        ("kæt", "[K][AE1][T]"),
        ("ðə", "[DH][AH0]"),
        ("ˈdʒɔɪ ˈbɝd", "[JH][OY1] [B][ER1][D]"),
    ],
)
def test_english(ipa: str, phones: str) -> None:
    assert to_cmu(ipa) == phones
    assert set(phones.replace("][", "] [").split()) <= set(SPECIAL_TOKENS[3])


@pytest.mark.parametrize("ipa", ["ˈbax", "y", "tɕi˨˩˦", "ʁuː", "ˈ", "hɛˈloʊ ʁ"])
def test_sounds_that_english_has_not(ipa: str) -> None:
    assert to_cmu(ipa) == ""
