"""The pass `unroll-small`: arrays of a few entries, computed entry by entry."""
