"""Our requests to URLs that others choose: the allowed hosts, and a client that connects only to these."""
