"""Times as they are written, and as anybody may have written them."""

from __future__ import annotations

import pytest

from reconciler.timestamps import parse_timestamp, timestamp

NEW_YEAR = 1_767_225_600.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-01T00:00:00Z", NEW_YEAR),
        ("2026-01-01T00:00:00.250000Z", NEW_YEAR + 0.25),
        ("2026-01-01T01:00:00+01:00", NEW_YEAR),
        ("2026-01-01T00:00:00", NEW_YEAR),
        ("0000-06-01T00:00:00Z", None),
        ("soon", None),
        (None, None),
    ],
)
def test_a_time_is_read_or_is_none(text: str | None, seconds: float | None) -> None:
    assert parse_timestamp(text) == seconds


def test_a_time_is_written_in_utc_as_precisely_as_asked() -> None:
    at = NEW_YEAR + 0.25

    assert timestamp(at) == "2026-01-01T00:00:00Z"
    assert timestamp(at, "milliseconds") == "2026-01-01T00:00:00.250Z"
    assert timestamp(at, "microseconds") == "2026-01-01T00:00:00.250000Z"
