"""Machine detection: who answered a call that we placed, a person, an answering machine, a fax, or a network
announcement.
"""
