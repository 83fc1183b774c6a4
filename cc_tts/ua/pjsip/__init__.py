"""What the UA process and PJSIP have in common below a call: its thread, its log, its objects."""
