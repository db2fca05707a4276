"""What a stop and restore cost, from the log alone.

`cost_of` reads the events of a file once, in the order written, and gives a `Cost`:
its stops, the ledger of its tokens, its runs, and the batch age of its steps.

A *stop* is the end of a run that a later run follows: one whose first event stands
after its last. Of two runs that write into one file at the same time neither is a stop
of the other; both are followed by the first run that begins after they ended.

Memory is that of what is open, and of what a restore from one of the last two
checkpoints could still give back: no more than `MOST_ATTEMPTS` ended attempts of half a
KB each, and some 2 KB for each run and step. What is older is added up by what happened
to it, so that counts and sums stay exact; only a run that trains or resumes it all the
same, against two newer checkpoints, is not recognised as having it.

Where the definitions leave it open: a step that was trained and then undone by a restore
counts as lost, unless the same group was trained again; what a concurrent run is followed
by is the first run that begins after it; a restore without a step is that of its path,
else of the newest checkpoint; a resumed attempt whose event does not say how many tokens
it began with is not counted, since nobody can tell which of its tokens are new.
"""

from .figures import FATES, Cost, Ledger, RunCost, StepAge, Stop, Waste
from .reading import cost_of
from .remembering import MOST_ATTEMPTS

__all__ = [
    "FATES",
    "MOST_ATTEMPTS",
    "Cost",
    "Ledger",
    "RunCost",
    "StepAge",
    "Stop",
    "Waste",
    "cost_of",
]
