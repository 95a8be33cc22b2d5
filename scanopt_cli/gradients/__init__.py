"""Derivatives of loops and the pedigree of the Scans they breed."""
