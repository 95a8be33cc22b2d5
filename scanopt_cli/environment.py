"""Environment variables that scanopt sets for the programs it starts."""

CAPTURE = "SCANOPT_CAPTURE"
"""Holds the directory for captured graphs. ``startup/sitecustomize.py`` repeats this name, because
it imports scanopt only once PyTensor is imported."""
