"""The pass ``keep-values``."""
