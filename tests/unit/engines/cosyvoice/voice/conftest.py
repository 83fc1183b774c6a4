from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> "TextTokenizer":
    from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
    from lab.cosyvoice.tiny_model import write_tokenizer

    directory = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(directory)
    return TextTokenizer.from_directory(directory)
