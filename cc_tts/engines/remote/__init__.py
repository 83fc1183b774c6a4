"""Engine workers on other machines: the server's connections to them, and a worker that serves several servers."""
