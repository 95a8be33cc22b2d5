"""The version of scanopt."""

__version__ = "0.1.0"
