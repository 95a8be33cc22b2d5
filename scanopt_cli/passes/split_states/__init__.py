"""The passes that split recursions which read no data off a loop."""
