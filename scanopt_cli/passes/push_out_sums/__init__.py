"""The pass `push-out-sums`: matrix products in place of sums of outer products."""
