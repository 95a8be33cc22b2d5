"""Environment variables that scanopt reads, and sets for the programs it starts."""

CAPTURE = "SCANOPT_CAPTURE"
"""Holds the directory for captured graphs. ``startup/sitecustomize.py`` repeats this name, because
it imports scanopt only once PyTensor is imported."""

STRICT = "SCANOPT_STRICT"
"""If it is set, an error of a pass ends `optimize`; else the pass leaves the loop as it is, with a
remark. ``--debug`` sets it."""

CACHE = "SCANOPT_CACHE"
"""``off`` (or ``0``) lets nothing be kept on disk for other processes, nor be read."""

CACHE_LIMIT = "SCANOPT_CACHE_LIMIT"
"""How many MiB may be kept on disk, as a whole number."""
