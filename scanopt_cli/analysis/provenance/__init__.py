"""Which loop of a graph comes from which, and where it was written."""
