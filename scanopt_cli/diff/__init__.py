"""Structural diffs of two graphs (parts added, removed, rewired), and budgets of graphs."""
