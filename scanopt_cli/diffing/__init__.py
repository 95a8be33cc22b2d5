"""Two graphs side by side: what was added, removed and rewired."""
