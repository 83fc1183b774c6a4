"""What decides about the draws of a text chunk. No torch here."""

import hashlib
from typing import Final

MAX_SEED: Final = 2**63 - 1


def seed_of(seed: int, voice_id: str, text: str) -> int:
    """The seed of a text in a voice, 0 to :data:`MAX_SEED`: the same voice says the same text in the same way."""
    key = "\0".join((str(seed), voice_id, text)).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") & MAX_SEED
