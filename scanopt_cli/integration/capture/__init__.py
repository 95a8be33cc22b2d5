"""Capture every graph with a Scan that a program compiles."""
