"""Inspect many models before they are fetched, in the background: a few at a time, each once.

Threads are started for requests and end with them, so an idle loop keeps none. Each serves one host
at a time, and no host gets more than a few: one that hangs does not delay the rest. A host that
cannot be reached is not tried for each of its models.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic

from reconciler.models.child import keeping
from reconciler.models.header_cache import HeaderCache, RemoteHeader
from reconciler.models.remote_header import fetch_header
from reconciler.models.scheme import ListRequest
from reconciler.models.sources import hosts_of

_MOST_AT_ONCE = 32  # threads: they mostly wait
MOST_OF_A_HOST = 8
_LONGEST_LOOK_S = 15.0  # for one model, so that the rest gets its turn
_AGAIN_AFTER_S = 300.0  # after a failure; also because a moving name may mean another file
_AGAIN_HERE_S = 5.0  # of files of this machine: whoever puts one there waits for it


_Hosts = tuple[str, ...]  # as hosts_of has them


@dataclass(slots=True)
class _Question:
    request: ListRequest
    answer: RemoteHeader | None = None
    asked_at: float = field(default_factory=monotonic)
    is_open: bool = True
    is_begun: bool = False


class HeaderReader:
    """What was requested, and what is known of it. Thread-safe.

    `changed` is called in one of our threads after every result. With `offline` no host is
    asked: of theirs only the cache is read.
    """

    def __init__(
        self,
        cache: HeaderCache,
        *,
        offline: bool = False,
        changed: Callable[[], None] = lambda: None,
        longest_look_s: float = _LONGEST_LOOK_S,
    ) -> None:
        self._cache = cache
        self._offline = offline
        self._changed = changed
        self._longest_look_s = longest_look_s
        self._lock = threading.Condition()
        self._questions: dict[str, _Question] = {}
        self._waiting: defaultdict[_Hosts, deque[_Question]] = defaultdict(deque)
        self._threads: Counter[_Hosts] = Counter()  # by the hosts that they serve

    def ask(self, requests: Mapping[str, ListRequest]) -> None:
        """Start to inspect the models that were not inspected lately, by entry_name. Returns at
        once."""
        with self._lock:
            for name, request in requests.items():
                known = self._questions.get(name)
                if known is not None and (known.is_open or not _is_old(known)):
                    continue
                asked = replace(request, cancelled=threading.Event())
                question = _Question(asked, known.answer if known else None)
                self._questions[name] = question
                if self._offline and hosts_of(asked.source):  # its cache is read: no time
                    question.answer, question.is_open = (
                        fetch_header(asked, self._cache, True),
                        False,
                    )
                    continue
                self._waiting[hosts_of(asked.source)].append(question)
                if (hosts := self._next_hosts()) is not None:
                    work = threading.Thread(target=self._work, args=(hosts,), daemon=True)
                    work.name = "look-ahead"
                    work.start()

    def answer(self, name: str) -> RemoteHeader | None:
        """The result; None if it was never requested or is not here yet."""
        question = self._questions.get(name)
        return question.answer if question else None

    def is_open(self, name: str) -> bool:
        """Whether the first result is still to come."""
        question = self._questions.get(name)
        return question is not None and question.is_open and question.answer is None

    def wait(
        self,
        names: Collection[str],
        deadline_s: float,
        progress: Callable[[int, int], None] = lambda done, total: None,
        *,
        gives_up: bool = True,
    ) -> None:
        """Wait until all have a result. Those without one at the deadline get an error, or with
        `gives_up` False are looked at further."""
        ends = monotonic() + deadline_s
        with self._lock:
            while True:
                left = [name for name in names if self.is_open(name)]
                progress(len(names) - len(left), len(names))
                if not left or monotonic() >= ends:
                    break
                self._lock.wait(min(0.2, max(0.0, ends - monotonic())))
            for name in left if gives_up else ():
                question = self._questions[name]
                known = fetch_header(question.request, self._cache, offline=True)
                late = "no answer" if question.is_begun else "not asked: its turn did not come"
                self._give_up(question, f"{late} within {deadline_s:g} s", known)

    def close(self) -> None:
        with self._lock:
            for question in self._questions.values():
                if question.is_open:
                    self._give_up(question, "stopped")

    def _give_up(self, question: _Question, why: str, known: RemoteHeader | None = None) -> None:
        question.request.cancelled.set()
        known = known if known and known.facts else None
        question.answer = question.answer or known or RemoteHeader(why=why)
        question.is_open = False

    def _work(self, hosts: _Hosts | None) -> None:
        while hosts is not None:
            with keeping():
                question = self._next_question(hosts, may_leave=False)
                while question is not None:
                    self._look(question)
                    self._changed()
                    question = self._next_question(hosts)
            with self._lock:
                hosts = self._next_hosts()

    def _next_hosts(self) -> _Hosts | None:
        """The hosts for one more thread, which counts from now on; None if none is needed. The
        caller holds the lock."""
        wanting = [h for h, queue in self._waiting.items() if queue]
        hosts = min(wanting, key=self._threads.__getitem__, default=None)
        if hosts is None or self._threads[hosts] >= MOST_OF_A_HOST:
            return None
        if self._threads.total() >= _MOST_AT_ONCE:
            return None
        self._threads[hosts] += 1
        return hosts

    def _next_question(self, hosts: _Hosts, may_leave: bool = True) -> _Question | None:
        """The next request for a thread. None if it should stop serving these hosts: nothing is
        left to do, or other hosts wait for a thread."""
        with self._lock:
            queue = self._waiting[hosts]
            while queue and not queue[0].is_open:
                queue.popleft()
            is_wanted = any(q and not self._threads[h] for h, q in self._waiting.items())
            if not queue or (may_leave and is_wanted):
                self._threads[hosts] -= 1
                return None
            queue[0].is_begun = True
            return queue.popleft()

    def _look(self, question: _Question) -> None:
        cancelled = question.request.cancelled
        alarm = threading.Timer(self._longest_look_s, cancelled.set)
        alarm.daemon = True
        alarm.start()
        try:
            header = fetch_header(question.request, self._cache)
        except Exception as error:  # noqa: BLE001  # a thread's edge: the caller waits for a result
            header = RemoteHeader(why=f"a bug in this program: {type(error).__name__}: {error}")
        finally:
            alarm.cancel()
        if cancelled.is_set():
            header = replace(
                header, why=header.why and f"no answer within {self._longest_look_s:g} s"
            )
        with self._lock:
            if question.is_open:
                question.answer, question.is_open = header, False
                question.asked_at = monotonic()
            if header.host_is_away:
                self._skip(hosts_of(question.request.source), header.why)
            self._lock.notify_all()

    def _skip(self, hosts: _Hosts, why: str) -> None:
        """Answer from the cache what is still to be asked there. The caller holds the lock."""
        for question in self._waiting[hosts]:
            known = fetch_header(question.request, self._cache, offline=True)
            self._give_up(question, why, known)


def _is_old(question: _Question) -> bool:
    again_s = _AGAIN_AFTER_S if hosts_of(question.request.source) else _AGAIN_HERE_S
    return monotonic() - question.asked_at > again_s
