"""Matches the nodes of two graphs, and the slots of their loops.

The graphs are ``before`` and ``after``. A ``node``, ``variable`` or ``slot`` is on the side before,
``other`` on the side after. A `NodePair` is two nodes that are matched; two variables are
*partners* if they are paired inputs of the graphs or paired outputs of matched nodes; variables
*correspond* if they are partners or compute the same. Pairs of numbers are places in two lists.

     before                             after

       x     ------- partners -------     x         paired inputs of the graphs
       |                                  |
      exp    ==== equal digests =====    exp        1. both compute the same
       |                                  |
      tanh   ------- changed --------  sigmoid      3. the walk came to both, and the Op changed
       |                                  |
      sum    -- same Op, walk up ----    sum        2. each makes what a pair reads (or reads it)
       |                                  |
     output  ------- partners -------   output      paired outputs of the graphs

One walk goes from every new pair to its neighbours: up, from paired inputs of two matched nodes to
the nodes that make them; and down, from partners to the nodes that read them. Nodes that the walk
does not come to are matched last (4), if they are similar.

Read `indexed_graph` (one of the graphs) and `correspondence` (what is matched so far), then `match`
(the walk), which asks `evidence` whether two nodes may be one, and `alignment` which of their
inputs and outputs are paired. For two loops that follows from their slots: `slot_pairing`.
"""
