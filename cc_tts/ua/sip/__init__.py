"""SIP beside PJSIP: accounts, registration, headers, URIs."""
