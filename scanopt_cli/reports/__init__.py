"""Renderers: one module for each command and format, from the same typed data."""
