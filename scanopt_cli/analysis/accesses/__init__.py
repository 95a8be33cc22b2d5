"""Finds the readers of a loop's output, and the rows that they read."""
