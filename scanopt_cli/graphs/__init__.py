"""What a graph file is: reading it safely, writing it, and counting what is in it."""
