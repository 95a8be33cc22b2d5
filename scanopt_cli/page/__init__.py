"""One self-contained HTML page: what a command found, the picture of the graph, and the passes."""
