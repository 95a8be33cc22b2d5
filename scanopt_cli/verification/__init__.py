"""Whether two graphs compute the same values."""
