"""Passes on Scans alone: on their taps, their buffers, and how PyTensor compiles them."""
