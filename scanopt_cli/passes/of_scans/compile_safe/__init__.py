"""The pass `compile-safe`: rewrites of bodies, and of the buffers and readers around them."""
