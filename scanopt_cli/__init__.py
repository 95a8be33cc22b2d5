"""scanopt: the optimizer and inspector for PyTensor's loops."""

__version__ = "0.1.0"
