"""The pass `remove-zeros`: removes states and sequences that are zero in every step."""
