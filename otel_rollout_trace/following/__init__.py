"""Following a log that another process writes: its spans and metrics, as they happen."""

from .follower import Followed, Follower, Until
from .lock import AlreadyFollowedError

__all__ = ["AlreadyFollowedError", "Followed", "Follower", "Until"]
