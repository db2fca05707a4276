"""The version, in one place: the package's, and that of its instrumentation scope."""

__version__ = "0.1.0"
