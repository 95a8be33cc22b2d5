"""The pass `loops-to-ops`: Ops on whole arrays in place of loops that need no loop."""
