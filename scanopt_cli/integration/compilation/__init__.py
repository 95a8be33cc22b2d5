"""Run the passes inside PyTensor's own compilation, in users' programs."""
