import pytest

from cc_tts.text.normalizer import Normalizer


@pytest.fixture(scope="module")
def normalizer() -> Normalizer:
    made = Normalizer()
    made.warm_up()
    return made
