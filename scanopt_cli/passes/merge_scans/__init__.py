"""The pass `merge-scans`: decides which loops may merge, and merges them."""
