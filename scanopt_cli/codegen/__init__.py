"""LLVM code of graphs that hold loops, written without a Numba function for each operation.

Numba compiles a graph of PyTensor's as one function for each operation, with its wrapper, and
infers types in each: most of the time that a first call takes. Here the code of a whole graph is
written at once, as one ``intrinsic`` that Numba calls; types and ranks are those of the graph.

values          numbers in registers, arrays in memory
  writer        the instructions that all rules need: lengths, memory, loops, errors, calls
    scalars     arithmetic of numbers
    elementwise arithmetic of arrays, and its reductions
    indexing    reads and writes of parts of arrays
    arrays      shapes, joins, allocation
    loops       loops over numbers
  graphs        one node after the other; what has no rule is called as PyTensor compiles it
functions       the function of a graph, for PyTensor's Numba linker
"""
