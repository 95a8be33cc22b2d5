"""The pass `save-mem`: how few rows of a loop are kept."""
