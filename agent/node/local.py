"""One node's agent inside another process: wires state, store, processes and target together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.byhand.asked import ByHand
from agent.engines.capability import doubts
from agent.machine.memory import MachineMemory, ours_of
from agent.models.expected import ExpectedFile, read_noted
from agent.models.header_gate import HeaderGate
from agent.models.revisions import KeptModels
from agent.models.store import ModelStore
from agent.node.admission import NodeAdmission
from agent.node.disk import DeclaredModels, ModelsDisk
from agent.node.drift import DriftWatch
from agent.node.handover import Handover, moves_file
from agent.node.recorded import kept_file, renderer_of
from agent.node.settings import Settings
from agent.node.target import ProcessTarget
from agent.node.view import read_gone
from agent.node.waiting import WaitingServices
from agent.process.events import ProcessTiming
from agent.process.health import ask
from agent.process.owner import Processes
from agent.process.rebuilt import models_of
from agent.state.directory import StateDir
from agent.state.drift_file import drift_file
from reconciler.api.errors import error_text
from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.model_file import ModelFile, with_companions
from reconciler.memory import ModelFacts
from reconciler.models.headers import Headers
from reconciler.models.scheme import FetchContext

_log = logging.getLogger(__name__)


class LocalAgent:
    """Owns the node until `close`. Raises StateError where another process does."""

    def __init__(
        self,
        node: str,
        settings: Settings,
        *,
        changed: Callable[[], None],
        headers: HeaderGate | None = None,
        keeps_expected: bool = False,
    ) -> None:
        """`headers`: what is known of models before they are fetched; nothing, without.
        `keeps_expected`: for who makes no pass, so that what services waited for is still said."""
        self.state = StateDir.open(settings.root)
        self.state.api_key = settings.api_key_file or self.state.api_key
        self.state.lock()
        self.store = ModelStore(
            settings.model_store or self.state.models,
            changed=changed,
            max_downloads=settings.downloads.max_running,
            min_free_bytes=settings.downloads.keep_free_bytes,
            hf_token_file=settings.downloads.token_file,
        )
        self.memory = MachineMemory()
        renderer = renderer_of(node, self.state, self.store, settings)
        self.by_hand = ByHand(self.state)
        self.admission = NodeAdmission(renderer, self.by_hand)
        self.processes = Processes(
            self.state,
            self.admission.checks(self.memory),
            timing=timing_of(settings),
            changed=changed,
        )
        self._kept = KeptModels(kept_file(self.state))
        self.disk = ModelsDisk(self.store, self._kept, self._running_models)
        self._headers = headers
        self._renderer = renderer
        self._doubted: tuple[str, ...] = ()
        self.drift = DriftWatch(
            self.processes.snapshot,
            ask,
            drift_file(self.state),
            changed,
            again_s=settings.intervals.drift_s,
        )
        self.handover = Handover(moves_file(self.state), settings.peers, changed=changed)
        kept = read_noted(self.state, f"node/{node}") * keeps_expected
        expected_file = ExpectedFile(self.state, kept)
        self.waiting = WaitingServices(node, renderer.store, time.time, expected_file, headers)
        self.target = ProcessTarget(
            node,
            renderer,
            self.processes,
            time.time,
            self.waiting,
            self.by_hand,
            self.memory,
            self.disk,
            self.drift,
            self.handover,
            self.admission,
            settings.namespace,
        )

    @property
    def headers(self) -> Headers | None:
        """What is read of models before they are fetched."""
        return self._headers.headers if self._headers else None

    def facts(self, fleet: Fleet, models: Sequence[Model]) -> dict[ObjectRef, ModelFacts]:
        """What the store knows of models, and of others what their headers say."""
        stored = self._renderer.facts(fleet, models)
        if self._headers is None:
            return stored
        absent = [model for model in models if model.ref not in stored]
        return stored | self._headers.facts(fleet, absent)

    def follow(self, context: FetchContext) -> None:
        """How the models of the revision that is applied now are fetched."""
        self.waiting.follow(context)
        if self._headers is not None:
            self._headers.follow(context)

    def start(self, *, revive: bool = True) -> None:
        """Take over what an earlier life of this program left running; see Processes.start."""
        if revive:
            self.target.gone_at_start = read_gone(self.state)
        self.processes.start(revive=revive)
        self.drift.start()

    def stated(self, node: FleetNode | None) -> None:
        """What the fleet says of this machine; its budgets, and what it says that is not so, are
        logged when they are news."""
        if node is None:
            return
        doubted = doubts(node.spec.runtimes, self._renderer.missing())
        for line in doubted if doubted != self._doubted else ():
            _log.warning("%s", line)
        self._doubted = doubted
        if self.memory.follow(node):
            for line in self.memory.budget_lines(ours_of(self.processes.snapshot())):
                _log.info("%s", line)

    def settled(self, declared: DeclaredModels) -> None:
        """Nothing is left to do for a revision: remove models that neither it, nor the `keep` - 1
        revisions before it, declares, and that no process here was started from.

        Declared counts, not served: the model of a service that does not fit is how we know that.
        """
        digests = self.disk.digests((*declared.models, *self._running_models()))
        try:
            kept = self._kept.note(declared.revision, digests, declared.keep)
            gone = self.store.collect(kept | digests)
        except OSError as error:
            _log.warning("models are not cleaned up: %s", error_text(error))
            return
        for digest in gone:
            _log.info("model %s removed from the store: no revision needs it", digest[:12])

    def _running_models(self) -> list[ModelFile]:
        return [
            model
            for state in self.processes.snapshot()
            for model in with_companions(models_of(state.launch))
        ]

    def save(self) -> None:
        """Write what is known again: the state directory was made anew. Raises StateError."""
        self.processes.save_all()
        self._renderer.ports.save()
        self.by_hand.save()
        self.handover.save()
        self.waiting.save()

    def close(self, *, stop_children: bool) -> None:
        """Stop watching; the models go on answering unless they are to stop too."""
        self.drift.close()
        self.handover.close()
        if self._headers is not None:
            self._headers.close()
        self.store.close()
        self.processes.close(stop_children=stop_children)
        self.state.unlock()


def timing_of(settings: Settings) -> ProcessTiming:
    """When processes are probed: one that was missed no less often than one that answers."""
    usual, probe_s = ProcessTiming(withdraw_s=settings.withdraw_s), settings.intervals.probe_s
    return replace(usual, probe_ready_s=probe_s, probe_missed_s=min(usual.probe_missed_s, probe_s))
