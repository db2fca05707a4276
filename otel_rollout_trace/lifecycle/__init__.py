"""What is open, what just ended, and how: the one reading of a log that every view shares.

Events go in, in the order of the log; a `Listener` hears what starts and ends.
Nothing here looks at a clock: the same events give the same items, live or
years later.
"""

from .carried import Carried, Published
from .items import Attempt, Group, Listener, Moment, Price, Refit, Segment, Step
from .tracker import Lifecycle

__all__ = [
    "Attempt",
    "Carried",
    "Group",
    "Lifecycle",
    "Listener",
    "Moment",
    "Price",
    "Published",
    "Refit",
    "Segment",
    "Step",
]
