"""The pass `fold-loops`: evaluates loops over constants once."""
