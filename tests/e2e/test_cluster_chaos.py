"""Whatever breaks in a cluster, and in whatever order: the fleet comes back, nobody else's objects
were touched, and no model on the Mac was ever stopped.

CLUSTER_CHAOS_SEED=7 CLUSTER_CHAOS_ROUNDS=200 python -m pytest -s tests/e2e/test_cluster_chaos.py
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.cluster_chaos import ClusterWorld
from tests.support.cluster_faults import FAULTS, HEALED_FIRST
from tests.support.rounds import play

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]

# Of 1.7 faults each, others in each run: `test_cluster_faults.py` has most of them one by one, and
# `make soak` plays forty.
_ROUNDS = 7


def test_after_every_fault_a_cluster_converges_and_nothing_foreign_was_touched(
    tmp_path: Path, tiny: Path
) -> None:
    play("CLUSTER_CHAOS", _ROUNDS, partial(ClusterWorld.open, tmp_path, tiny), FAULTS, HEALED_FIRST)
