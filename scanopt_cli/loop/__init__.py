"""Loops of a simpler design than PyTensor's Scan: the operators, and functions that write them.

Importing this package teaches PyTensor to compile them, in every mode, and to vectorize them.
"""

from scanopt_cli.loop import batching as batching
from scanopt_cli.loop import registered_rewrites as registered_rewrites
from scanopt_cli.loop.body import Body as Body
from scanopt_cli.loop.helpers import filter as filter
from scanopt_cli.loop.helpers import for_loop as for_loop
from scanopt_cli.loop.helpers import map as map
from scanopt_cli.loop.helpers import reduce as reduce
from scanopt_cli.loop.helpers import scan as scan
from scanopt_cli.loop.helpers import while_loop as while_loop
from scanopt_cli.loop.operators import Loop as Loop
from scanopt_cli.loop.operators import TracedLoop as TracedLoop
