"""Addresses to open in a browser, printed once what is there answers.

A link is written ``NAME=URL``, or ``NAME=URL@POLLED`` where this process reaches the
same thing under another address than the person who reads: in a container,
``Jaeger=http://127.0.0.1:16686@http://jaeger:16686/`` asks ``jaeger`` and prints
``127.0.0.1``. Several are separated by spaces in ``OTEL_ROLLOUT_TRACE_DEMO_OPEN``.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

__all__ = ["Link", "poll"]

_PATIENCE_SECONDS: Final = 180.0
_EVERY_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 3.0

_FORM: Final = re.compile(r"(?P<name>[^=]+)=(?P<url>https?://.+?)(@(?P<polled>https?://.+))?")


class Link(NamedTuple):
    """An address.

    Attributes:
        name: what is there.
        url: the address that is printed.
        polled: the address that is asked.
    """

    name: str
    url: str
    polled: str

    @classmethod
    def parse(cls, text: str) -> Link:
        """Read a link as it is written.

        Raises:
            ValueError: if it is not of that form.
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"--open {text!r} is not like Jaeger=http://127.0.0.1:16686")
        return cls(found["name"], found["url"], found["polled"] or found["url"])


def poll(
    links: Sequence[Link], say: Callable[[str], None], *, patience: float = _PATIENCE_SECONDS
) -> threading.Thread:
    """Ask in the background until each has answered, or patience ends; never an error.

    Args:
        links: what to ask.
        say: is called with a line for each that answers, and for each that does not in time.
        patience: how long to ask, in seconds.

    Returns:
        The thread that asks.
    """

    def ask() -> None:
        left = list(links)
        deadline = time.monotonic() + patience
        while left and time.monotonic() < deadline:
            for link in [link for link in left if _answers(link.polled)]:
                left.remove(link)
                say(f"open {link.name}: {link.url}")
            if left:
                time.sleep(_EVERY_SECONDS)
        for link in left:
            say(f"{link.name} does not answer: {link.url}")

    thread = threading.Thread(target=ask, name="demo-links", daemon=True)
    thread.start()
    return thread


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS):  # noqa: S310 - http(s) only
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return error.code < 500  # it is there, and wants a login perhaps
    except (OSError, ValueError, http.client.HTTPException):
        return False
