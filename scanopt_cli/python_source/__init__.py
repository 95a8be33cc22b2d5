"""A graph as a Python script that builds it again, without scanopt.

`planning` finds, for each node of a graph, an expression that makes it: it tries those first that a
person would write (`operations`, `indexing`, `scan_calls`, `loop_calls`), evaluates each, and keeps
the first whose result has the digest of the original. `layout` writes the plan as a script;
`to_python` runs that once more, in a namespace of its own, and compares the digests of the whole.
"""
