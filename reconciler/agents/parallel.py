"""Many questions at once, with one deadline for all answers."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")
_MOST_THREADS = 128


def ask_all(questions: Mapping[str, Callable[[], T]], deadline: float) -> dict[str, T]:
    """The answers that came until `deadline` (of time.monotonic()), asked in the given order. What
    a question raises is raised here, at once.

    A question that hangs, in name resolution for instance, which has no timeout, is left behind:
    its thread is a daemon and its answer is missing here.
    """
    todo: queue.SimpleQueue[str] = queue.SimpleQueue()
    for key in questions:
        todo.put(key)
    answers: queue.SimpleQueue[tuple[str, T] | Exception] = queue.SimpleQueue()

    def work() -> None:
        while time.monotonic() < deadline:
            try:
                key = todo.get_nowait()
            except queue.Empty:
                return
            try:
                answers.put((key, questions[key]()))
            except Exception as error:  # noqa: BLE001 - the caller is to see it, not a thread
                answers.put(error)

    for _ in range(min(_MOST_THREADS, len(questions))):
        threading.Thread(target=work, name="ask", daemon=True).start()
    by_name: dict[str, T] = {}
    while len(by_name) < len(questions):
        try:
            answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if isinstance(answer, Exception):
            raise answer
        by_name[answer[0]] = answer[1]
    return by_name
