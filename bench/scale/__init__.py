"""What many nodes cost a git server, the central loop and one API server: `python -m bench.scale`.

Three minutes. Real programs at a size that a small machine bears, their CPU time rather than wall
clock; a simulation of what happens when; and what follows for 1,000 and 10,000 nodes, which `how`
says. docs/scale.md explains the rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.scale import central, cluster, git
from bench.table import Row

FLEETS = (1_000, 10_000)


def rows() -> Iterator[Row]:
    commit = yield from git.rows(FLEETS)
    asked = yield from central.rows(FLEETS)
    woken = asked / 2  # each is asked for its state first
    yield Row("a webhook: agents woken a second", "", [woken], "agents asked a second / 2")
    yield Row("... requests of theirs to git a second", "", [woken * commit.requests], "x requests")
    yield Row("... cores of the git server", "", [woken * commit.server_ms / 1e3], "x CPU")
    yield from cluster.rows(FLEETS)
