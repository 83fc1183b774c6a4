"""SIP functions beside PJSIP: accounts, registration, headers, URIs."""
