"""Check what tests compile: the plug-in for pytest, which pytest finds by an entry point."""
