"""Two legs whose far sides hear each other."""
