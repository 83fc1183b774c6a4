"""The console: a page for operators and supervisors, over the public API alone."""
