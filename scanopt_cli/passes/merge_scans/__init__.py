"""The pass `merge-scans`: which loops may become one, and the one they become."""
