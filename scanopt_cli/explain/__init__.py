"""What the terms of scanopt and of PyTensor's loops mean: a Markdown file a topic."""
