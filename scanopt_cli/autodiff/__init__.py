"""Derivatives of graphs with loops: strategies, rules, legality and checks."""
