"""Reports whether an engine in a pod is ready, and waits for its requests before it ends.

One thread probes the engine, so a kubelet's probes never reach it: the responses here are the last
result. A router that has nothing loaded is asked to load.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.pod.engine import Engine
from agent.process.drain_text import describe_cut, describe_wait
from agent.process.health import HealthVerdict
from agent.server.sampler import Counted, counters_of
from agent.system.clock import Clock, SystemClock

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Delays:
    """Every delay, in seconds.

    `settle_s` is the shortest drain: an endpoint takes a moment to be withdrawn, and requests
    arrive until then. `forget_s` after a drain, an engine that was not ended counts as ready again.
    """

    ready_s: float = 2.0
    loading_s: float = 0.25
    slots_s: float = 0.25
    settle_s: float = 5.0
    forget_s: float = 30.0
    load_first_s: float = 5.0  # a router first loads what its preset lists
    load_most_s: float = 300.0


@dataclass(slots=True)
class _Drain:
    """One drain, for all callers. `identity` is the process that it is about."""

    identity: str
    began: float
    done: threading.Event = field(default_factory=threading.Event)
    ended: float = 0.0
    text: str = ""


class Companion:
    """Returns at once in any thread, except `drain`. `preload` are the models that a router should
    have loaded; `tell` takes a line for the log."""

    def __init__(
        self,
        engine: Engine,
        tell: Callable[[str], None],
        *,
        preload: tuple[str, ...] = (),
        drain_timeout_s: float = 60.0,
        pace: Delays = Delays(),
        clock: Clock | None = None,
    ) -> None:
        self._engine, self._tell, self._pace = engine, tell, pace
        self._clock: Clock = clock or SystemClock()
        self._preload = preload or engine.launch.models[:1]
        self._drain_timeout_s = drain_timeout_s
        self._lock = threading.Lock()
        self._drain: _Drain | None = None
        self._verdict = HealthVerdict(False, "Starting", "the engine has not been asked yet")
        self._proven: str | None = None  # the identity of the process that was ready
        self._load_at: float | None = None
        self._load_pause_s = pace.load_first_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="probe", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop. A probe in progress ends by its own deadline."""
        self._stop.set()

    @property
    def is_alive(self) -> bool:
        """Whether the engine is still being probed."""
        return self._thread.is_alive()

    def readiness(self) -> HealthVerdict:
        """What was found last; not ready from the moment a drain begins."""
        drain = self._drain
        if drain is not None:
            return HealthVerdict(False, "Draining", drain.text or "waits for requests in flight")
        return self._verdict

    def counters(self) -> tuple[Counted, ...]:
        """The engine's counters of tokens; none while it does not answer."""
        verdict, process = self._verdict, self._proven
        if not verdict.ready or process is None:
            return ()
        return tuple(counters_of(self._engine.launch, verdict.served, process))

    @property
    def backend(self) -> str:
        return self._engine.launch.runtime

    def drain(self) -> str:
        """Stop being ready, and return once no request is in flight or the time is over: what was
        cut. Another call joins the same drain."""
        with self._lock:
            drain = self._drain
            if drain is None:
                drain = self._drain = _Drain(self._engine.identity(), self._clock.monotonic())
                self._tell("drains: ready no more")
                threading.Thread(
                    target=self._empty, args=(drain,), name="drain", daemon=True
                ).start()
        drain.done.wait()
        return drain.text

    # The thread that asks.

    def _watch(self) -> None:
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            try:
                verdict = self._probe()
            except Exception as error:  # noqa: BLE001  the thread must not die unseen
                _log.exception("bug in the probe")
                verdict = HealthVerdict(False, "ProbeFailed", f"{type(error).__name__}: {error}")
            before, self._verdict = self._verdict, verdict
            if (before.ready, before.reason) != (verdict.ready, verdict.reason):
                why = f"not ready: {verdict.reason}: {verdict.message}"
                self._tell("ready" if verdict.ready else why)
            pause_s = self._pace.ready_s if verdict.ready else self._pace.loading_s

    def _probe(self) -> HealthVerdict:
        identity = self._engine.identity()
        self._forget_drain(identity)
        verdict = self._engine.probe(proven=identity == self._proven)
        if verdict.ready:
            self._proven = identity
        elif identity != self._proven:
            self._proven = None
        self._see_to_models(verdict)
        return verdict

    def _forget_drain(self, identity: str) -> None:
        """A container that failed its liveness probe is drained too, and restarted beside us. And a
        drain after which the engine is not ended must not keep it from serving."""
        drain = self._drain
        if drain is None or not drain.done.is_set() or not identity:
            return
        now = self._clock.monotonic()
        if identity != drain.identity or now >= drain.ended + self._pace.forget_s:
            self._tell("the drain is over: the engine serves on, or was started again")
            self._drain = None

    def _see_to_models(self, verdict: HealthVerdict) -> None:
        """Ask a router without a loaded model to load some, again and again with growing pauses."""
        if self._engine.many is None or verdict.ready or not verdict.served:
            self._load_at, self._load_pause_s = None, self._pace.load_first_s
            return
        now = self._clock.monotonic()
        if any(model.state == "loading" for model in verdict.served):
            return
        if self._load_at is None:
            self._load_at = now + self._load_pause_s
        if now < self._load_at or self._drain is not None:
            return
        agreed = self._engine.load(self._preload)
        self._tell(f"asked the router to load {', '.join(self._preload)}" if agreed else
                   f"the router refuses to load {', '.join(self._preload)}")  # fmt: skip
        self._load_pause_s = min(2 * self._load_pause_s, self._pace.load_most_s)
        self._load_at = now + self._load_pause_s

    # The thread of one drain.

    def _empty(self, drain: _Drain) -> None:
        try:
            text = self._wait_for_requests(drain)
        except Exception as error:  # noqa: BLE001  the caller waits for a result
            _log.exception("bug in the drain")
            text = f"requests in flight are unknown: {type(error).__name__}: {error}"
        self._tell(text)
        drain.text, drain.ended = text, self._clock.monotonic()
        drain.done.set()

    def _wait_for_requests(self, drain: _Drain) -> str:
        """Why it is over."""
        busy: int | None = None
        printed: int | None = None
        until = drain.began + self._drain_timeout_s
        settled = drain.began + min(self._pace.settle_s, self._drain_timeout_s)
        while not self._stop.is_set():
            if self._engine.identity() != drain.identity:
                return "drained: the engine has ended"
            now = self._clock.monotonic()
            if not self._works_on_requests(drain):
                requests: int | None = 0
            else:
                requests = self._engine.requests_in_flight()
            busy = busy if requests is None else requests  # a failed reading is not 0
            if requests == 0 and now >= settled:
                return f"drained after {now - drain.began:.1f} s: nothing was cut"
            if now >= until:
                return describe_cut(busy, self._drain_timeout_s)
            if busy and busy != printed:
                self._tell(describe_wait(busy))
                printed = busy
            self._stop.wait(min(self._pace.slots_s, max(until - now, 0.0)))
        return "drained: the companion was stopped"

    def _works_on_requests(self, drain: _Drain) -> bool:
        """Whether there can be any, and they can be counted: as an agent before it ends one."""
        return self._engine.counts_requests and self._proven == drain.identity
