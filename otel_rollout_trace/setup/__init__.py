"""Setting up: providers from the standard environment variables, and a trace on them."""

from .configure import configure

__all__ = ["configure"]
