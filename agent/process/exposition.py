"""What a process says of itself in the words of Prometheus. Pure."""

from __future__ import annotations

import math
import re


def total(text: str, metric: str) -> float | None:
    """The sum over all series of a metric in an exposition; None where there is none."""
    # Only the lines asked for: to parse all of fifty answers would cost more than to get them.
    lines = re.findall(rf"(?m)^{re.escape(metric)}(?:\{{.*\}})?[ \t]+(\S+)", text)
    try:
        values = [float(value) for value in lines]
    except ValueError:
        return None
    result = sum(values)
    return result if values and math.isfinite(result) and result >= 0 else None
