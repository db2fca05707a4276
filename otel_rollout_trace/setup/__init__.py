"""Setting up: providers from the standard environment variables, and a trace on them."""

from .configuring import configure

__all__ = ["configure"]
