"""How long one pass waits for what it began."""

from __future__ import annotations

import pytest

from reconciler.cli.once import is_final
from reconciler.core.observation import Pending
from tests.support.builders import instance


@pytest.mark.parametrize(
    ("reason", "waits_for", "final"),
    [
        ("ModelCorrupt", None, True),
        ("Loading", None, False),
        ("ModelCorrupt", "Downloading", False),  # its bytes may be right again
        ("Ready", "ModelCorrupt", True),
    ],
)
def test_what_no_waiting_helps_is_final(reason: str, waits_for: str | None, final: bool) -> None:
    pending = Pending(waits_for, "", 0.0) if waits_for else None

    assert is_final(instance("chat", reason=reason, pending=pending)) is final
