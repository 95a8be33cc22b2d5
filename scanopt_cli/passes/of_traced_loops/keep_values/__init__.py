"""The pass `keep-values`: a backward loop reads what the forward loop computed.

The backward loop of a gradient undoes the steps of the forward loop, the last first. Here both
compute ``exp`` of a state, of which the forward loop returns the trace ``y``::

                            i = 0       i = 1      ...    i = n-1
    forward loop    reads   y[0]        y[1]              y[n-1]
                    makes   exp(y[0])   exp(y[1])         exp(y[n-1])    traced as k[i]
                              |           |                 |
    backward loop   reads   y[0]        y[1]              y[n-1]         as y[:-1][::-1][j]
                    makes   exp(y[0])   exp(y[1])         exp(y[n-1])    read as k[::-1][j]
                            j = n-1     j = n-2    ...    j = 0

Step ``j`` of the backward loop undoes step ``i = n-1-j`` of the forward loop. So what both read
has one *source* (`sources`): an array outside of the loops, and an index in terms of ``i``. From
sources and literals on, each value of a step gets a *value number* (`value_numbers`); values with
the same number are equal. `loop_pair` lets the forward loop trace each expensive value whose number
both loops compute.
"""
