"""SIP URIs that we send requests to. No pjsua2 here."""


def with_transport(uri: str, transports: tuple[str, ...]) -> str:
    """``uri`` with a ``;transport=`` that is served here, if it names none and PJSIP's choice, UDP, is not
    (RFC 3263 §4.1). Secure before clear.
    """
    scheme, _, rest = uri.partition(":")
    named = any(each.lower().startswith("transport=") for each in rest.split(";")[1:])
    if named or scheme.lower() == "sips" or "udp" in transports:
        return uri
    return f"{uri};transport={'tls' if 'tls' in transports else 'tcp'}"
