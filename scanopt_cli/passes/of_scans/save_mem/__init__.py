"""The pass `save-mem`: keeps only the rows of a loop's buffers that are read."""
