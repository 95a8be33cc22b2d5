"""When two graphs, Ops or loops compute the same: canonical digests and the form of loops.

canonical, hashing    the digest of a graph, and of the bodies in it
  sameness            what counts as equal (`definition`); the keys of Ops, Types and graphs
    digests           the keys of the variables of one graph, one node after the other
    loop_forms        the key of a loop, whatever the order of its slots
    encoding          any value as bytes (`opaque` where it has none)
      keys            bytes as a short key: a hash, or an exact number
"""
