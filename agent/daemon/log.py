"""What the daemon says: one line an event on stderr, as `key=value` pairs for people and programs.

time=2026-11-21T18:01:28.123Z level=info msg=ready service=default/chat endpoint=http://...
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from typing import TextIO

from reconciler.api.meta import ObjectRef
from reconciler.api.problem import Problem
from reconciler.core.observation import Observation, RuntimeFound
from reconciler.core.plan import Action, Change
from reconciler.core.target import Result
from reconciler.loop import Listener, Pass
from reconciler.report.news import News
from reconciler.report.terminal import printable
from reconciler.timestamps import timestamp

# What these say at `info`, DaemonLog says with its place in a plan: theirs is for `debug`.
_SAID_HERE = ("agent.process.owner", "agent.process.units", "reconciler.loop")
_LEVELS = {"error": logging.ERROR, "note": logging.INFO}  # of problems; else a warning
_PLAIN = re.compile(r"[^\s\"'=\\]+")


def log_to(stream: TextIO, level: str) -> logging.Logger:
    """Send everything of both packages there, as lines; returns the daemon's own logger."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Lines())
    for name in ("reconciler", "agent"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
    for name in _SAID_HERE:
        quiet = logging.NOTSET if level == "debug" else logging.WARNING
        logging.getLogger(name).setLevel(quiet)
    # a failed download is said with its service
    logging.getLogger("agent.models.downloads").setLevel(logging.ERROR)
    return logging.getLogger("agent.daemon")


def say(logger: logging.Logger, level: int, text: str, **pairs: object) -> None:
    """One line; a pair without a value is left out."""
    logger.log(level, "%s", text, extra={"pairs": pairs})


# Of a service that is not ready: nothing is wrong. Any other reason is a warning.
_ON_ITS_WAY = frozenset(
    {"Adopted", "Downloading", "Loading", "Reloading", "Replacing", "Starting", "Stopping"}
)


class DaemonLog(Listener):
    """Says each thing once, when it changes."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._news = News()
        self._runtimes: tuple[RuntimeFound, ...] = ()
        self._stopped: frozenset[ObjectRef] = frozenset()

    def on_planned(self, planned: Pass) -> None:
        plan = planned.plan
        if not self._news.planned(plan):
            return
        counts = {name: count for name, count in plan.summary.items() if count}
        self._info("plan", revision=plan.revision, **(counts or {"unchanged": 0}))
        for change in plan.changes:
            self._info("change", **_change(change))
        for item in plan.blocked:
            self._warn("blocked", **_ref(item.ref), reason=item.reason, message=item.message)

    def on_applied(self, done: Pass) -> None:
        for outcome in self._news.applied(done.outcomes):
            level = logging.ERROR if outcome.result is Result.FAILED else logging.INFO
            self._say(
                level,
                str(outcome.result),
                action=outcome.change.action,
                **_ref(outcome.change.ref),
                message=outcome.message,
            )

    def on_refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self._news.refused()
        self._say(logging.ERROR, "refused, what runs stays as it is", revision=revision)
        for problem in problems:
            self._say(
                _LEVELS.get(problem.severity, logging.WARNING),
                "problem",
                revision=revision,
                message=str(problem),
            )

    def on_held(self, why: str) -> None:
        if self._news.held(why):
            self._warn("held, what runs stays as it is", message=why)

    def on_rewritten(self, how: str) -> None:
        self._warn("the branch was rewritten", message=how)

    def on_source_lost(self, why: str, since: float) -> None:
        if self._news.lost(why):
            at = timestamp(since, "milliseconds")
            self._warn("source lost, what runs stays as it is", since=at, message=why)

    def on_source_back(self) -> None:
        self._news.back()
        self._info("source answers again")

    def on_observed(self, observed: Observation) -> None:
        for state in observed.targets.values():
            if state.runtimes is not None:
                for row in (row for row in state.runtimes if row not in self._runtimes):
                    self._info("runtime", name=row.name, path=row.path, version=row.version)
                self._runtimes = state.runtimes
            for ref in sorted(state.stopped.keys() - self._stopped):
                self._info("stopped by hand", **_ref(ref))
            self._stopped = frozenset(state.stopped)
        changed, gone = self._news.looked(observed.instances)
        for instance in changed:
            if instance.ready:
                took = instance.start_seconds
                self._info(
                    "ready",
                    **_ref(instance.ref),
                    endpoint=instance.endpoint,
                    pid=instance.pid,
                    seconds=took and round(took, 3),
                )
            else:
                fields = {"reason": instance.reason, "message": instance.message}
                level = logging.INFO if instance.reason in _ON_ITS_WAY else logging.WARNING
                self._say(level, "not ready", **_ref(instance.ref), pid=instance.pid, **fields)
        for ref in gone:
            self._info("stopped", **_ref(ref))

    def _info(self, text: str, **pairs: object) -> None:
        self._say(logging.INFO, text, **pairs)

    def _warn(self, text: str, **pairs: object) -> None:
        self._say(logging.WARNING, text, **pairs)

    def _say(self, level: int, text: str, **pairs: object) -> None:
        say(self._logger, level, text, **pairs)


class _Lines(logging.Formatter):
    """`key=value` pairs; quoted like JSON where a value is more than one plain word."""

    def format(self, record: logging.LogRecord) -> str:
        pairs: Mapping[str, object] = {
            "time": timestamp(record.created, "milliseconds"),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            **getattr(record, "pairs", {"logger": record.name}),
        }
        line = " ".join(f"{k}={_value(v)}" for k, v in pairs.items() if v not in (None, ""))
        if record.exc_info and os.environ.get("FLEET_DEBUG"):
            line += "\n" + self.formatException(record.exc_info)
        return line


def _value(value: object) -> str:
    text = printable(str(value).replace("\n", "; "))
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _ref(ref: ObjectRef) -> dict[str, object]:
    return {"service": ref.label} if ref.kind == "InferenceService" else {"object": str(ref)}


def _change(change: Change) -> dict[str, object]:
    fields = (f"{f.path} {f.before} -> {f.after}" for f in change.fields)
    source = change.source
    where = source and f"{source.file}:{source.line}"
    shown = change.action is not Action.UNKNOWN
    return {
        "action": change.action,
        **_ref(change.ref),
        "reason": change.reason,
        "fields": ", ".join(fields) if shown else None,
        "at": where,
        "commit": source and source.commit and source.commit[:12],
        "message": change.message,
    }
