"""How a process shows its state to its own machine, without needing anything that may be broken.

`check` is the client behind the command `health`: the standard library alone, so that a check costs next to nothing. `serving`
answers it from the running process, `lag` finds what keeps the event loop from turning, `starts` counts starts. Import what is
needed from there: this file imports nothing, since `health` pays for it.
"""
