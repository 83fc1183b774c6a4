"""Reference recordings and texts, as the networks take them."""
