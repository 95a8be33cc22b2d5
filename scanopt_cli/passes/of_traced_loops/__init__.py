"""Passes on TracedLoops alone, which have states and traces, but no taps and no buffers."""
