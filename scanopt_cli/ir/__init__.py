"""What everything works on: the graph of a file, the graphs inside its Ops, and Scans as slots."""
