"""Who is on the line and what is being said."""
