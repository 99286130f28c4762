"""Keeps the labels of one Node as its machine is, until it is stopped. They stay behind then: a pod
that is replaced must not make its node look empty meanwhile."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.labels.deciding import Decided, decide
from agent.labels.facts import DriverHangs, Facts
from agent.labels.node import DesiredLabels, TakenKey, read_node, write_labels
from reconciler.api.errors import UsageError
from reconciler.kube.client.errors import ClusterError

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_REWRITTEN_S = 300.0  # vendors' labels change, and ours may be taken away
_log = logging.getLogger(__name__)


class Labeler:
    """One Node. `read` reads the machine's facts."""

    def __init__(
        self,
        api: ApiServer,
        node: str,
        prefix: str,
        read: Callable[[], Facts],
        *,
        rewritten_s: float = _REWRITTEN_S,
    ) -> None:
        self._api, self._node, self._prefix, self._read = api, node, prefix, read
        self._rewritten_s = rewritten_s
        self._written: tuple[Facts, float] | None = None  # and when it is due again
        self._logged: dict[str, object] = {}
        self.passed_at = time.monotonic()

    @property
    def is_current(self) -> bool:
        """Whether what was found last is on the Node."""
        return self._written is not None

    def once(self) -> Decided:
        """Raises DriverHangs, UsageError, ClusterError; the labels are as before then."""
        return self._write(self._read())

    def run(self, stop: threading.Event, interval_s: float) -> None:
        """Look again and again; trouble is logged once, until it changes or ends."""
        while not stop.is_set():
            try:
                facts = self._read()
                if self._is_due(facts):
                    self._write(facts)
                self._trouble("")
            except (DriverHangs, UsageError, ClusterError) as error:
                self._written = None
                self._trouble(str(error))
            except Exception as error:  # noqa: BLE001 - a loop's edge: drivers raise what they like
                self._written = None
                self._trouble(f"{type(error).__name__}: {error}")
            self.passed_at = time.monotonic()
            stop.wait(interval_s)

    def _is_due(self, facts: Facts) -> bool:
        if self._written is None:
            return True
        before, due = self._written
        return facts != before or time.monotonic() >= due

    def _write(self, facts: Facts) -> Decided:
        node = read_node(self._api, self._node)
        decided = decide(facts, node["metadata"].get("labels"))
        wanted = DesiredLabels(
            decided.labels.labels(self._prefix), decided.annotations(self._prefix)
        )
        taken = write_labels(self._api, node, wanted)
        # not all nodes at the same moment
        pause_s = self._rewritten_s * random.uniform(0.5, 1)  # noqa: S311 - not for secrets
        self._written = facts, time.monotonic() + pause_s
        self._report(wanted, taken)
        return decided

    def _report(self, wanted: DesiredLabels, taken: tuple[TakenKey, ...]) -> None:
        others = {each.key for each in taken}
        listed = " ".join(f"{k}={v}" for k, v in sorted(wanted.labels.items()) if k not in others)
        if self._is_new("labels", (wanted, taken)):
            _log.info("node %s is labelled %s", self._node, listed or "with nothing")
            for text in wanted.annotations.values():
                if not text.isdecimal():
                    _log.warning("node %s: %s", self._node, text)
        if self._is_new("taken", taken) and taken:
            _log.warning(
                "node %s: left as they are, as someone else wrote them: %s",
                self._node,
                ", ".join(map(str, taken)),
            )

    def _trouble(self, text: str) -> None:
        if self._is_new("trouble", text):
            if text:
                _log.warning("%s; the labels of node %s stay as they are", text, self._node)
            else:
                _log.info("node %s: no trouble any more", self._node)

    def _is_new(self, about: str, value: object) -> bool:
        before = self._logged.get(about, "")
        self._logged[about] = value
        return value != before
