"""What this node's page is made of: `status -o json` and `plan -o json` of this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from reconciler.api.meta import service_ref
from reconciler.loop.declared_services import declared_services
from reconciler.loop.explained import explained
from reconciler.page.values import AskBox, Documents
from reconciler.report.nodestate import verdicts_of
from reconciler.report.plan_json import plan_json
from reconciler.report.status import Status
from reconciler.report.status_json import status_json

if TYPE_CHECKING:
    from agent.server.answer import Answers, Body
    from agent.server.board import StateBoard
    from reconciler.loop import Pass


class NodeDocuments:
    """Used by one thread. Made once for all that look, as long as nothing changes."""

    def __init__(
        self, answers: Answers, board: StateBoard, ask_box: Callable[[str, str], AskBox]
    ) -> None:
        self._answers, self._board, self._ask_box = answers, board, ask_box
        self._kept: tuple[Body, Pass | None, Documents] | None = None

    def __call__(self) -> Documents:
        body, planned = self._answers.state(), self._board.planned
        kept = self._kept
        if kept is None or kept[0] is not body or kept[1] is not planned:
            kept = self._kept = (body, planned, self._documents(body, planned))
        return kept[2]

    def _documents(self, body: Body, planned: Pass | None) -> Documents:
        state, target, observed = body.state, self._answers.target, self._answers.observed()
        name = target.partition("/")[2]
        if planned is None:
            return Documents(name, status_json(Status(observed, states={target: state})), None)
        verdicts = {target: verdicts_of(state)}
        declared = declared_services(planned.desired, planned.plan, observed, verdicts, name)
        revision = planned.desired.fleet.revision
        status = Status(observed, declared, {target: state}, revision)
        explain = partial(self._explained, planned, name)
        return Documents(
            *(name, status_json(status), plan_json(planned.plan), explain, self._ask_box),
            has_logs=True,
        )

    def _explained(
        self, planned: Pass, node: str, namespace: str, name: str
    ) -> Mapping[str, Any] | None:
        ref = service_ref(f"{namespace}/{name}")
        return explained(planned, ref, node, self._answers.command(ref))
