"""Which loops PyTensor's own rewrites provably change, by asking those that are installed."""
