"""What loops compute at each step: the values of their slots, and of the nodes inside."""
