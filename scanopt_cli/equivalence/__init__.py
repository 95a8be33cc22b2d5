"""When two graphs are the same: canonical digests."""
