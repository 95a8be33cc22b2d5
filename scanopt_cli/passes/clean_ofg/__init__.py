"""The pass `clean-ofg`: OpFromGraphs without what nothing reads, and what they have twice."""
