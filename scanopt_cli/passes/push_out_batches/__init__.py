"""The pass `push-out-batches`: computes with matrices of sequences for all steps at once."""
