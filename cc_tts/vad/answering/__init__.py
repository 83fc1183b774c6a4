"""Who answered a call that we placed: a person, an answering machine, a fax, a network announcement."""
