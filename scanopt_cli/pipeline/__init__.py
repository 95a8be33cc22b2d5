"""The contract of passes, the text form of pipelines, and their runner."""
