"""Renderers: one module a format, each from the same typed data."""
