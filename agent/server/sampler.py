"""Measures beside the loop what would take too long for a request."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from agent.node.settings import Intervals
from agent.server.rates import Rates
from agent.server.scrape import read_totals
from agent.state.apikey import sent_key
from reconciler.runtimes import RUNTIMES
from reconciler.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from agent.process.launch import Launch, ProcessSnapshot
    from reconciler.api.benchmark import BenchmarkResult
    from reconciler.api.meta import ObjectRef
    from reconciler.api.nodestate import Pressure, StoredState
    from reconciler.fleet.command import ServedModel

_ASKED_AT_ONCE = 2  # each thread costs memory, and they wait for loopback only
_END_S = 2.0
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - asked, not listened on


@dataclass(frozen=True, slots=True)
class Shown:
    """The results of the last round. `speeds`: tokens written a second by each service, the mean of
    the last minute; known ones only. `requests`: how many each answers now; likewise. `loads`: the
    seconds that it took to bring each model, by its name; likewise."""

    stored: tuple[StoredState, ...] = ()
    pressure: Pressure | None = None
    benchmarks: tuple[BenchmarkResult, ...] = ()
    speeds: Mapping[ObjectRef, float] = field(default_factory=dict)
    requests: Mapping[ObjectRef, int] = field(default_factory=dict)
    loads: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counted:
    """One counter of one process, and where it is read. `process` differs after each start.
    `requests` is the metric of those that it answers now."""

    ref: ObjectRef
    process: int | str
    model: str
    backend: str
    url: str
    metric: str
    key_file: str | None = None
    requests: str | None = None


class Sampler:
    """A thread that reads the counters of every engine, each with a deadline, independently of each
    other. `wanted` says which are there now, `look` collects the rest; `after` is called at the end
    of each round."""

    def __init__(
        self,
        wanted: Callable[[], Iterable[Counted]],
        sample: Callable[[], Shown] = Shown,
        after: Callable[[], None] = lambda: None,
        *,
        every_s: float = Intervals().sample_s,
    ) -> None:
        self._wanted, self._sample, self._after = wanted, sample, after
        self.shown = Shown()
        self._rates = Rates()
        self._requests: dict[Counted, int] = {}
        self._asked: dict[Counted, Future[None]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="sample")
        self._worker = Worker("sampler", self._round, every_s=every_s, what="round of measuring")

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        """Stop. A request in progress is left to its deadline."""
        self._worker.end()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._worker.close()

    def tokens_per_second(self) -> dict[tuple[str, str], float]:
        """By (model, backend), over all processes that serve it; known rates only."""
        rates: dict[tuple[str, str], float] = {}
        for counted, rate in self._known():
            key = (counted.model, counted.backend)
            rates[key] = rates.get(key, 0.0) + rate
        return rates

    def _speeds(self) -> dict[ObjectRef, float]:
        """By service, over all of its models; in tenths, so that noise changes nothing."""
        rates: dict[ObjectRef, float] = {}
        for counted, rate in self._known():
            rates[counted.ref] = rates.get(counted.ref, 0.0) + rate
        return {ref: round(rate, 1) for ref, rate in rates.items()}

    def _in_flight(self) -> dict[ObjectRef, int]:
        """By service, over all that is known of its processes now."""
        requests: dict[ObjectRef, int] = {}
        with self._lock:
            for counted, count in self._requests.items():
                requests[counted.ref] = requests.get(counted.ref, 0) + count
        return requests

    def _known(self) -> list[tuple[Counted, float]]:
        now = time.monotonic()
        with self._lock:
            rates = [(c, self._rates.per_second(c, now)) for c in self._wanted()]
        return [(counted, rate) for counted, rate in rates if rate is not None]

    def _round(self) -> None:
        wanted = tuple(self._wanted())
        with self._lock:
            self._rates.keep_only(wanted)
            self._requests = {c: n for c, n in self._requests.items() if c in wanted}
        # An engine that has not answered the last request gets no other.
        self._asked = {c: f for c, f in self._asked.items() if not f.done()}
        for counted in wanted:
            if counted not in self._asked and not self._worker.is_ending:
                self._asked[counted] = self._pool.submit(self._ask, counted)
        shown = replace(self._sample(), speeds=self._speeds(), requests=self._in_flight())
        if shown != self.shown:
            self.shown = shown
        self._after()

    def _ask(self, counted: Counted) -> None:
        key = None if counted.key_file is None else sent_key(counted.key_file)
        names = (counted.metric, counted.requests)
        value, requests = read_totals(counted.url, names, key=key)
        with self._lock:
            if value is not None:
                self._rates.add(counted, time.monotonic(), value)
            if requests is not None:
                self._requests[counted] = round(requests)
            else:
                self._requests.pop(counted, None)


def counters(states: Iterable[ProcessSnapshot]) -> Iterator[Counted]:
    """Every counter of this machine's processes that can be read now."""
    for state in states:
        if state.ready and state.pid is not None:
            yield from counters_of(state.launch, state.served, state.pid)


def counters_of(
    launch: Launch, served: Iterable[ServedModel], process: int | str
) -> Iterator[Counted]:
    """The counters of one that is ready, without waking or loading anything."""
    row = RUNTIMES.get(launch.runtime)
    if row is None or row.metrics_path is None or row.tokens_metric is None:
        return
    if row.serves_many:
        names = tuple(model.name for model in served if model.state == "loaded")
        paths = {n: f"{row.metrics_path}?model={quote(n, safe='')}&autoload=false" for n in names}
    else:
        paths = dict.fromkeys(launch.models[:1], row.metrics_path)
    host = _REACHED_AT.get(launch.host, launch.host)
    base = f"http://[{host}]:{launch.port}" if ":" in host else f"http://{host}:{launch.port}"
    key_file = None if launch.command.key is None else launch.command.key.file
    for name, path in paths.items():
        yield Counted(
            *(launch.ref, process, name, row.name),
            *(base + path, row.tokens_metric, key_file, row.requests_metric),
        )
