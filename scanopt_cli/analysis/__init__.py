"""What is known of loops: lengths, trip counts, row values, dependence, and counts of a graph.

Nothing here rewrites a graph; passes ask, and decide.
"""
