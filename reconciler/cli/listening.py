"""What a loop beside agents alone answers over HTTP: the same as one that has clusters."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reconciler.cli.clusters import serves_of

if TYPE_CHECKING:
    from reconciler.agents.nodes import AgentNodes
    from reconciler.loop import Listener, Wake


@contextmanager
def served_beside_agents(
    args: argparse.Namespace, agents: AgentNodes, wake: Wake
) -> Iterator[tuple[Listener, ...]]:
    """The listeners of what is served for as long as the loop runs; none where nothing is."""
    serves = serves_of(args)
    if serves.listen is None:
        yield ()
        return
    from reconciler.cli.fleet_documents import FleetDocuments
    from reconciler.kube.server.board import Board, Role
    from reconciler.kube.server.thread import OperatorServer

    logging.getLogger("reconciler.kube.server").setLevel(logging.INFO)  # says where it answers
    board, documents = Board(lambda: Role(leads=True)), FleetDocuments(agents)
    server = OperatorServer(board, documents, serves, wake.fetch)
    server.start()
    try:
        yield (board, documents)
    finally:
        server.close()
