"""``follow``: its status line, and what it says at the end."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..events import Vocabulary
from ..following import Followed, Until
from ..following.wiring import StopRequest, make_follower
from ..receipts import Receipts
from .tables import duration, many

__all__ = ["FollowOptions", "follow_file"]

# Without a terminal it says how it is doing now and then.
_EVERY_S: Final = 60.0


@dataclass
class FollowOptions:
    """What ``follow`` was asked for.

    Attributes:
        endpoint, protocol: of the receiver; None for the environment's.
        once: whether it ends when it has caught up.
        metrics: whether metrics are sent too.
        silence: for how many seconds a writer that cannot be looked for may be silent.
        as_json: whether what it ends with is JSON.
        vocabulary: which words mean which row.
    """

    endpoint: str | None
    protocol: str | None
    once: bool
    metrics: bool
    silence: float
    as_json: bool
    vocabulary: Vocabulary


def follow_file(path: Path, options: FollowOptions) -> bool:
    """Follow a log; whether everything that it holds arrived.

    Raises:
        AlreadyFollowedError: if another process does.
        LogError: if it is no log.
        OSError: if nothing can be written beside it.
        ValueError: for options that cannot be used.
    """
    logging.getLogger("otel_rollout_trace").setLevel(logging.ERROR)
    stop = StopRequest()
    patience = _Patience(stop) if options.once else None
    say = _teller(options)
    with _status(path, say) as show:

        def progress(found: Followed) -> None:
            show(found)
            if patience is not None:
                patience(found)

        follower, target = make_follower(
            path.absolute(),
            stop,
            endpoint=options.endpoint,
            protocol=options.protocol,
            metrics=options.metrics,
            vocabulary=options.vocabulary,
            until=Until.CAUGHT_UP if options.once else Until.STOPPED,
            silence=options.silence,
            progress=progress,
        )
        stop.on_signals()
        say(f"{path.name}: following it, to {target}; Ctrl-C ends that, and next time it goes on")
        if not path.exists():
            say(f"{path}: does not exist yet; waiting for it")
        found = follower.run()
    if options.as_json:
        print(json.dumps(_as_dict(path, found)))
    else:
        _print_followed(path, found, target)
    return not found.waiting and not found.refused


def _teller(options: FollowOptions) -> Callable[[str], object]:
    """Says things on stderr, unless it is to end at once anyway."""
    if options.once:
        return lambda _: None
    return lambda text: print(text, file=sys.stderr, flush=True)


class _Patience:
    """Ends a follower that is to catch up once where nothing arrives."""

    _TRIES_S: Final = 15.0

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop
        self._since: float | None = None

    def __call__(self, found: Followed) -> None:
        if not found.outage:
            self._since = None
            return
        self._since = self._since or time.monotonic()
        if time.monotonic() - self._since > self._TRIES_S:
            self._stop.make()


@contextmanager
def _status(path: Path, tell: Callable[[str], object]) -> Iterator[Callable[[Followed], object]]:
    """Show how it is doing, on a line of its own where there is a terminal."""
    console = Console(stderr=True, highlight=False, emoji=False)
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda found: live.update(_line(path, found), refresh=True)
        return
    said, outage = time.monotonic(), ""

    def show(found: Followed) -> None:
        nonlocal said, outage
        if bool(outage) != bool(found.outage):
            tell(f"nothing arrives, trying again: {found.outage}" if found.outage else "it arrives")
        elif time.monotonic() - said >= _EVERY_S:
            tell(_line(path, found).plain)
        else:
            return
        said, outage = time.monotonic(), found.outage

    yield show


def _line(path: Path, found: Followed) -> Text:
    parts = [
        many(found.events, "event"),
        f"{many(found.sent, 'span')} sent",
        f"{many(found.open_attempts, 'attempt')} out",
        f"lag {duration(found.lag)}" if found.lag else "up to date",
    ]
    text = Text(f"{path.name}: " + " · ".join(parts), no_wrap=True, overflow="ellipsis")
    if found.outage:
        text = (
            Text(f"nothing arrives: {found.outage}", style="red", overflow="ellipsis")
            + Text("\n")
            + text
        )
    return text


def _print_followed(path: Path, found: Followed, target: str) -> None:
    so_far = " so far" if found.waiting else ""
    print(f"{path.name}: {many(found.events, 'event')} of {many(found.runs, 'run')} read{so_far}")
    if found.bad_lines:
        print(f"  skipped   {many(found.bad_lines, 'bad line')}")
    print(f"  spans     {many(found.sent, 'span')} sent to {target}")
    if found.over:
        print(f"  over      {many(len(found.over), 'run')} found to be over")
    if found.going_on and not found.waiting:
        print(
            f"  going on  {many(found.going_on, 'run')}; {many(found.open_attempts, 'attempt')} out"
        )
    sys.stdout.flush()
    if found.refused:
        print(
            f"otel-rollout-trace: {many(found.refused, 'span')} refused by {target}",
            file=sys.stderr,
        )
    if found.waiting:
        reason = f": {found.outage}" if found.outage else ""
        print(
            f"otel-rollout-trace: {many(found.waiting, 'span')} or more not sent yet, and the "
            f"rest of the log not read; following again goes on there{reason}",
            file=sys.stderr,
        )


def _as_dict(path: Path, found: Followed) -> dict[str, Any]:
    return {"path": str(path), **vars(found), "receipts": str(Receipts(path).directory)}
