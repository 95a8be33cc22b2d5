"""The format ``.scanopt``: a graph as data, in a zip archive of one JSON table and arrays."""
