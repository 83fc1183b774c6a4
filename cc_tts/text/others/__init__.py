"""Text of languages that have no package of rules: signs, dates, sums, abbreviations and numbers by tables."""
