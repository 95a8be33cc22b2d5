"""Which rewrite breaks a graph: of a pass, or of PyTensor's."""
