"""Canonical digests, which decide whether two graphs are the same."""
