"""Log lines of a command that sends them nowhere. Apart from `edge.py`, as a key that a shell
completes waits for what is imported."""

from __future__ import annotations

import logging
import os

from reconciler.report.terminal import printable


def prepare_logs() -> None:
    """None of them is obeyed by a terminal, and tracebacks are for debugging."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Printable())


class _Printable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = printable(record.getMessage())
        if record.exc_info and os.environ.get("FLEET_DEBUG"):
            text += "\n" + self.formatException(record.exc_info)
        return text
