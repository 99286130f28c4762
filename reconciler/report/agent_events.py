"""What happened on a node, a line each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from typing import Any

from reconciler.report.plan_parts import totals
from reconciler.report.terminal import printable


def event_line(kind: str, data: Mapping[str, Any], zone: tzinfo | None = None) -> str:
    """`11-26 12:03:11  notice    default/chat: ready after 2.1 s`; times of `zone`, else here."""
    at = data.get("at")
    when = "-" * 14
    if isinstance(at, int | float) and 0 <= at < 1e11:
        when = datetime.fromtimestamp(at, zone).strftime("%m-%d %H:%M:%S")
    return printable(f"{when}  {kind:<8}  {_TEXTS.get(kind, _fields)(data)}").rstrip()


def _notice(data: Mapping[str, Any]) -> str:
    return f"{data.get('service', '?')}: {data.get('message', '')}"


def _outcome(data: Mapping[str, Any]) -> str:
    what = f"{data.get('service', '?')}: {data.get('action', '?')} {data.get('result', '')}"
    why = "; ".join(str(data[key]) for key in ("reason", "message") if data.get(key))
    return f"{what} ({why})" if why else what


def _plan(data: Mapping[str, Any]) -> str:
    counted = data.get("summary")
    what = totals(counted) if isinstance(counted, dict) else _text(counted)
    return f"{what}  {str(data.get('revision') or '')[:12]}"


def _state(data: Mapping[str, Any]) -> str:
    revision, problems = data.get("revision"), data.get("problems")
    about = str(revision)[:12] if revision else ""
    why = problems[0] if isinstance(problems, list) and problems else data.get("message", "")
    return " ".join(str(part) for part in (data.get("state", ""), about, why) if part)


def _fields(data: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {_text(value)}" for key, value in data.items() if key != "at")


def _text(value: object) -> str:
    """A value of an event of any version of the agent."""
    return value if isinstance(value, str) else json.dumps(value)


_TEXTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "notice": _notice,
    "outcome": _outcome,
    "plan": _plan,
    "revision": _state,
    "source": _state,
}
