"""``cc-tts call``: a SIP phone for tests and demonstrations, with RTP of its own. Nothing else imports it."""
