"""LLVM code of graphs that hold loops, written without a Numba function for each operation.

Numba compiles a graph of PyTensor's as one function for each operation, with its wrapper, and
infers types in each: most of the time that a first call takes. Here the code of a whole graph is
written at once, as one ``intrinsic`` that Numba calls; types and ranks are those of the graph.

functions         the function of a graph, for PyTensor's Numba linker
  keys            by what it is cached on disk
  kept_code       its machine code, on disk
  whole_graphs    from its arguments to what it returns
  graphs          one node after the other; what has no rule is called as PyTensor compiles it
    scalars       arithmetic of numbers
    elementwise   arithmetic of arrays, and its reductions
    indexing      reads and writes of parts of arrays (`rows`: of rows in a step)
    arrays        shapes, joins, allocation
    branches      conditionals
    loops         loops: where their states are (`states`), and their memory (`buffers`)
                  (`distribution`: many steps of loops over numbers, in parts)
                  (`equal_loops`: equal loops call one function)
    products      products, `factors` and `diagonals` of matrices (`fortran`, `routines`: BLAS;
                  `substitution`: small systems)
  apart           functions of LLVM's, for what would be written several times
  entries         reads and writes of the entries of arrays
  writer          what all rules need: control, memory, numbers, calls
    lengths       lengths and conditions, known or not
    values        what stands for a variable: a number in a register, an array in memory
"""
