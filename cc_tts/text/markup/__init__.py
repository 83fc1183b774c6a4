"""Rules for what language models write around and beside the words that are said."""
