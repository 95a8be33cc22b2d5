"""The contract of a pass, the text of a pipeline, and the runner of both."""
