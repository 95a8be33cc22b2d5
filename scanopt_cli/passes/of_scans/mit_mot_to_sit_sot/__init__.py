"""The pass `mit-mot-to-sit-sot`: replaces mit_mots by states, sequences and traces."""
