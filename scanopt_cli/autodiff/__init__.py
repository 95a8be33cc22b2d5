"""Derivatives of graphs with loops: strategies, pushforward rules, legality and checks."""
