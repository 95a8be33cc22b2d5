"""The pass `trim-steps`: runs only the steps of a loop that are read."""
