"""Analyses of loops: lengths, trip counts, row values, dependence, and counts of a graph.

No module here changes a graph by itself: passes use the analyses, and decide what to rewrite.
"""
