"""What makes a CI job fail: graphs beside what is known of them, in a lock file.

lock_file        the file: what is known of each graph
  known_findings what `check` leaves out
  locking        what a lock file holds of a graph
  comparing      how a graph is now beside what is locked
passes_gate      what passes would mend
"""
