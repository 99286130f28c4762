"""Whatever breaks, and in whatever order: the fleet comes back, and nobody else notices.

CHAOS_SEED=7 CHAOS_ROUNDS=500 python -m pytest -s tests/e2e/test_chaos.py
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.chaos import ChaosWorld
from tests.support.faults import FAULTS
from tests.support.rounds import play

pytestmark = pytest.mark.e2e

_ROUNDS = 6  # of 1.7 faults each, others in each run; `make soak` plays a hundred


def test_after_every_fault_the_fleet_converges_and_nothing_else_was_touched(
    tmp_path: Path,
) -> None:
    play("CHAOS", _ROUNDS, partial(ChaosWorld.open, tmp_path), FAULTS)
