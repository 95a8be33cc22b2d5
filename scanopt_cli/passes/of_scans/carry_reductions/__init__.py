"""The pass `carry-reductions`: carries reductions of a trace instead of the trace."""
