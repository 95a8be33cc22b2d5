"""Environment variables that scanopt sets for the programs it starts."""

CAPTURE = "SCANOPT_CAPTURE"
"""Names the directory of captured graphs; the name stands in ``startup/sitecustomize.py`` as well,
which imports nothing of scanopt before it must."""
