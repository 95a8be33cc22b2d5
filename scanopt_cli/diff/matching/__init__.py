"""Matches the nodes of two graphs, and the slots of two Scans."""
