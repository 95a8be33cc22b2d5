"""Who reads which rows of a loop's output."""
