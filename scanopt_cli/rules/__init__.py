"""What `check` looks for: a rule is a small file, as a pass is."""
