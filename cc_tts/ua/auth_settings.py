"""``[auth]`` as the UA process gets it."""

import msgspec


class UserCredentials(msgspec.Struct, frozen=True):
    """Somebody who may call us."""

    username: str
    password: str


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whose INVITEs are taken, and who is not asked. No users: nobody is asked."""

    realm: str = "cc-tts"
    users: tuple[UserCredentials, ...] = ()
    exempt_peers: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ("SHA-256", "MD5")
    nonce_lifetime_s: float = 60.0
