"""The pass `compile-safe`: what it does to bodies, and to buffers and readers around them."""
