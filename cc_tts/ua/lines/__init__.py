"""Lines without SIP: calls from Asterisk's WebSocket channel or AudioSocket. No pjsua2 here."""
