"""The pass `compile-safe`: one module for each of PyTensor's rewrites that it keeps out."""
