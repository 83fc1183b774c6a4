"""Voices: the catalog, enrolment and the library of enrolled voices."""
