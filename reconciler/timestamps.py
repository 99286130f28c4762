"""Times as Kubernetes writes them: RFC 3339, in UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

Precision = Literal["seconds", "milliseconds", "microseconds"]


def timestamp(seconds: float, precision: Precision = "seconds") -> str:
    """`2026-01-01T12:00:00Z`, of seconds since the epoch."""
    at = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return f"{at.isoformat(timespec=precision)}Z"


def parse_timestamp(text: object) -> float | None:
    """Seconds since the epoch; None if it is not a time: anyone who may edit an object may write
    any, such as one of the year 0. Without an offset it is in UTC."""
    try:
        read = datetime.fromisoformat(str(text))
        return read.replace(tzinfo=read.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return None
