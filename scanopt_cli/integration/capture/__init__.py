"""Keeping every graph with a Scan that a program compiles."""
