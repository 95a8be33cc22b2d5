"""Structural diffs of two graphs (parts added, removed, rewired), and budgets of graphs.

comparing                   diff(a, b); pairs the inputs and outputs of both graphs (`ends`)
  graph_changes             compares two graphs, and again the bodies of their loops
    matching                which nodes are the same, as two `IndexedGraph` and one `Matching`
    loop_changes, properties, whole_indices, sizes         what changed about matched nodes
    regions, edge_changes   nodes that only one graph has, and inputs that read another node
    grouping                equal changes become one `Change` with a count
    loop_fates              what became of each loop
"""
