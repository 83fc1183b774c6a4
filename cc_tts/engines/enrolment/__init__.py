"""Enrolment: a recording becomes a voice, in a process of its own."""
