"""The pass `trim-steps`: how few steps of a loop are run."""
