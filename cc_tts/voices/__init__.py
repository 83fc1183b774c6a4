"""Voices: the catalogue, enrolment, and the library of enrolled voices."""
