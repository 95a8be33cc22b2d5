"""The pass `inline-constants`: moves constant inputs of loops into their bodies."""
