"""The pass `keep-values`: a backward loop reads what the forward loop computed.

The loop of a gradient undoes the steps of another one, the last first. Here it is with the trace
``y`` of a state, and what it computes again::

                            i = 0       i = 1      ...    i = n-1
    forward loop    reads   y[0]        y[1]              y[n-1]
                    makes   exp(y[0])   exp(y[1])         exp(y[n-1])    traced as k[i]
                              |           |                 |
    backward loop   reads   y[0]        y[1]              y[n-1]         as y[:-1][::-1][j]
                    makes   exp(y[0])   exp(y[1])         exp(y[n-1])    read as k[::-1][j]
                            j = n-1     j = n-2    ...    j = 0

Steps of both are named by the ``i`` of the forward loop. So what both read has one name, a
*source* (`sources`): an array outside of them, and an index that depends on ``i``. Of sources and
literals, each value of a step gets its *number* (`value_numbers`); what has the same number is
equal. `loop_pair` keeps what has a number that both loops compute, and takes long.
"""
