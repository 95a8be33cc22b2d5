"""The pass `clean-slices`: reads and writes of rows, by the plainest index."""
