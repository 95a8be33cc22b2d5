"""The pass `normalize-reads`: writes the readers of a loop so that their rows are known."""
