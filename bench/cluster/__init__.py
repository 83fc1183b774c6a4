"""A cluster in virtual time: many servers and speech workers, thousands of calls. See ``__main__``."""
