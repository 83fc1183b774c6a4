"""English that is written in short: abbreviations, Roman numerals, citations of courts."""
