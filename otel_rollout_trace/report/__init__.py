"""A log as one HTML page that needs nothing else: for a run review, or an incident write-up.

`write_report` reads logs, each once and in bounded memory, and writes the page. Its
figures are those of `cost` and `batch_age`; what it draws is drawn by Plotly, whose
script is part of the page, so that it opens on a machine without a network.
"""

from .writing import Report, default_output, write_report

__all__ = ["Report", "default_output", "write_report"]
