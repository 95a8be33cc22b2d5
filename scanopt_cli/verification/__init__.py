"""Test whether two graphs compute the same values."""
