"""Where scanopt meets the programs of its users: what they compile is captured or optimised."""
