"""Which voice speaks a text, and how loud."""
