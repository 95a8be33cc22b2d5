"""Graph files: reading and writing them, judging them, and the values recorded beside them."""
