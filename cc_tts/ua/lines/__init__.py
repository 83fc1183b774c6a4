"""Lines without SIP: calls that Asterisk brings by its WebSocket channel or by AudioSocket. No pjsua2 here."""
