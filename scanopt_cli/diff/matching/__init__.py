"""Matches the nodes of two graphs, and the slots of their loops.

The graphs are ``before`` and ``after``. A ``node``, ``variable`` or ``slot`` is on the side before,
``other`` on the side after. The words for what belongs together:

* *matched* nodes, a `NodePair`: one node before and after the change;
* *paired* slots, inputs or outputs of two matched nodes or of the graphs, which two ints tell: the
  positions in two lists;
* *partners*, two variables that are paired inputs of the graphs or paired outputs of matched nodes;
* variables that *correspond*: partners, or variables that compute the same.

     before                             after

       x     ------- partners -------     x         paired inputs of the graphs
       |                                  |
      exp    ==== equal digests =====    exp        1. both compute the same
       |                                  |
      tanh   ------- changed --------  sigmoid      5. the walk came to both, and the Op changed
       |                                  |
      sum    -- same Op, walk up ----    sum        2. each makes what a pair reads (or reads it)
       |                                  |
     output  ------- partners -------   output      paired outputs of the graphs

The stages, in order, each followed by the walk from what it matched:

(1) nodes of equal digests; (2) the walk, which goes from every new pair to its neighbours: up, from
paired inputs of two matched nodes to the nodes that make them, and down, from partners to the nodes
that read them. Until loops are matched, it goes down only; (3) loops of one name. Then, up to four
times, the walk from all pairs, (4) nodes that compute the same if matched nodes are taken to be
equal, (5) nodes that the walk came to and whose Op changed, (4) again, (6) similar nodes, wherever
they are, and those nodes of (5) that have one Op and little else in common. In the end, what can be
read in any order, inputs of sums and slots of loops, is aligned anew: more is known than when it
was matched.

Read `indexed_graph` (one of the graphs) and `correspondence` (what is matched so far), then `match`
(the walk), which asks `evidence` whether two nodes may be one, and `alignment` which of their
inputs and outputs are paired. For two loops that follows from their slots: `slot_pairing`.
"""
