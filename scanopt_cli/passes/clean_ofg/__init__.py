"""The pass `clean-ofg`: OpFromGraphs without what nothing reads of them, or what they have twice."""
