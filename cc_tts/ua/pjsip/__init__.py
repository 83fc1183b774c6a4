"""PJSIP's thread, log, configuration and objects that are not part of a single call."""
