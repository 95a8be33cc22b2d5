"""The pass `simplify`: simplifies bodies with those of PyTensor's rewriters that are sound."""
