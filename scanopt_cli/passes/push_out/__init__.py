"""The pass `push-out`: moves loop-invariant and elementwise computation out of a loop."""
