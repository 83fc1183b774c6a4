"""What the UA process needs to know for SIP over TLS; part of its settings. No pjsua2 here."""

import msgspec


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What SIP over TLS needs. ``ca_file`` may be empty."""

    port: int
    certificate_file: str
    private_key_file: str
    private_key_password: str
    ca_file: str
    verify_client: bool
    verify_server: bool
