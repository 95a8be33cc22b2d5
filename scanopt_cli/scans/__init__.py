"""What a Scan is made of: the one place that knows its positional bookkeeping."""
