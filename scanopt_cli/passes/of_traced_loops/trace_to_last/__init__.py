"""The pass `trace-to-last`: keeps of the traces of TracedLoops only what is read."""
