"""The pass `clean-slices`: composes slices and forwards stores to loads."""
