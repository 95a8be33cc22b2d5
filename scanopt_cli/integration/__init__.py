"""Hooks into users' programs, which capture or optimise what the programs compile."""
