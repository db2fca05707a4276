"""Trials: processes killed, disks filled, receivers away, by the dozen.

Run with ``python -m pytest -m trial tests/trials -s``; a table at the end has the figures.
"""
