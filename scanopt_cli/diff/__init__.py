"""Two graphs side by side: what was added, removed and rewired; and budgets of graphs."""
