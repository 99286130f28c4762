"""What an error response of the API server means. Pure.

Servers return a Status object; balancers and proxies in front of them return anything. Messages
never repeat a value that was sent: it may be a secret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from reconciler.kube.client.errors import (
    ClusterError,
    Conflict,
    Denied,
    Faltered,
    Gone,
    Immutable,
    InvalidObject,
    NotFound,
    Throttled,
    Unreachable,
)

Causes = tuple[tuple[str, str], ...]

_PAUSE_S = 1.0  # for a server that asks for a pause without a length
_LONGEST_PAUSE_S = 3600.0
_MOST_TEXT = 500
_LONG_VALUE = 60

# `conflict with "kubectl" with subresource "scale" using apps/v1 at 2026-01-01T00:00:00Z`
_OWNER = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"')
_UNTYPED = re.compile(r"^failed to create typed patch object \(.*?\): (.*)$")
_UNFIT = "the server rejected our request due to an error in our request"  # a JSON patch's test
_VALUE = re.compile(r"^(Invalid value|Unsupported value|Duplicate value): (.*?)(: [^:]*)?$", re.S)
_OF_NO_KIND = {
    "404 page not found": "this kind is not installed there"
}  # of a path that no kind has
_PRIVATE = re.compile(r"\benv\b|\bargs\b|\bdata\b|stringData|secret|token|password", re.IGNORECASE)
_FIXED = re.compile(
    r"immutable|may not be changed|may not change once set|cannot be changed"
    r"|updates to \w+ spec for fields other than|cannot change roleRef",
    re.IGNORECASE,
)


def error_of(
    status: int, body: bytes, retry_after: str | None, *, what: str, cluster: str
) -> ClusterError:
    """The error of a response. `what` was tried, such as "apply Deployment default/chat"."""
    status_object = _status_object(body)
    asked = f"cluster {cluster}: {what}"
    if status == 429 or (status == 503 and retry_after is not None):
        pause_s = _seconds(retry_after)
        return Throttled(f"{asked}: the API server asks for a pause of {pause_s:g} s", pause_s)
    text = _text(status_object, body)
    if status == 500 and (match := _UNTYPED.search(text)):
        return _undeclared(asked, match[1])
    if status >= 500:
        trouble = Faltered if status == 500 and status_object else Unreachable
        return trouble(f"{asked}: the API server is in trouble ({status}): {text}")
    if status < 400:
        return Unreachable(f"{asked}: answered with {status}; is that an API server's URL?")
    make = _MAKERS.get(status, _refused)
    return make(asked, status_object, text)


def _conflict(asked: str, status: Mapping[str, Any], text: str) -> ClusterError:
    rows = [row for row in _details(status) if row.get("reason") == "FieldManagerConflict"]
    owners = [
        (owner[1].replace('\\"', '"'), str(row.get("field", "")))
        for row in rows
        if (owner := _OWNER.search(str(row.get("message", ""))))
    ]
    if not owners:
        return Conflict(f"{asked}: {text}")
    listed = ", ".join(f"{field} is {manager}'s" for manager, field in owners)
    return Conflict(f"{asked}: {listed}", tuple(owners))


def _denied(asked: str, status: Mapping[str, Any], text: str) -> ClusterError:
    """403 is returned by the authorizer, and also by admission: quotas, webhooks, terminating
    namespaces."""
    if 'User "' in text and " cannot " in text:
        return Denied(f"{asked}: {text}")
    return _refused(asked, status, text)


def _undeclared(asked: str, text: str) -> ClusterError:
    """A server-side apply with fields that the kind does not have is answered with 500, of all
    things."""
    field, _, message = text.partition(": ")
    message = message.partition(", got &value")[0]  # what follows is the value
    return InvalidObject(f"{asked}: {field} {message}", ((field, message),))


def _invalid(asked: str, status: Mapping[str, Any], text: str) -> ClusterError:
    if text == _UNFIT:
        return Conflict(f"{asked}: it has changed since the patch was made")
    causes = _causes(status)
    if causes and all(_FIXED.search(message) for _, message in causes):
        return Immutable(f"{asked}: {_listed(causes)}", causes)
    return _refused(asked, status, text)


def _refused(asked: str, status: Mapping[str, Any], text: str) -> ClusterError:
    causes = _causes(status)
    return InvalidObject(f"{asked}: {_listed(causes) if causes else text}", causes)


_MAKERS: Mapping[int, Callable[[str, Mapping[str, Any], str], ClusterError]] = {
    401: lambda asked, _, text: Denied(f"{asked}: {text}"),
    403: _denied,
    404: lambda asked, _, text: NotFound(f"{asked}: {_OF_NO_KIND.get(text, text)}"),
    409: _conflict,
    410: lambda asked, _, text: Gone(f"{asked}: {text}"),
    422: _invalid,
}


def event_error(event: Mapping[str, Any], *, what: str, cluster: str) -> ClusterError:
    """The error of an ERROR event in a watch: a Status object in a response that began with 200."""
    body = orjson.dumps(event)
    pause = (event.get("details") or {}).get("retryAfterSeconds")
    code = int(event.get("code") or 500)
    return error_of(code, body, None if pause is None else str(pause), what=what, cluster=cluster)


def warning_text(header: str) -> str:
    """`299 - "text"` -> text (RFC 7234, section 5.5)."""
    match = re.match(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"', header)
    return re.sub(r"\\(.)", r"\1", match[1]) if match else header


def is_the_servers_own(body: bytes) -> bool:
    """Whether an error is the API server's, and not that of something behind its proxy."""
    return bool(_status_object(body))


def _status_object(body: bytes) -> Mapping[str, Any]:
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return status if isinstance(status, dict) and status.get("kind") == "Status" else {}


def _text(status: Mapping[str, Any], body: bytes) -> str:
    message = status.get("message") or body.decode(errors="replace")
    return " ".join(str(message).split())[:_MOST_TEXT] or "no reason given"


def _details(status: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return [row for row in causes if isinstance(row, dict)] if isinstance(causes, list) else ()


def _causes(status: Mapping[str, Any]) -> Causes:
    rows = ((str(row.get("field", "")), str(row.get("message", ""))) for row in _details(status))
    return tuple((field, _without_value(field, message)) for field, message in rows)


def _without_value(field: str, message: str) -> str:
    message = message.partition("\n@@ ")[0]  # of a claim: a diff of the current and the new value
    match = _VALUE.match(message)
    if not match or (len(match[2]) <= _LONG_VALUE and not _PRIVATE.search(field)):
        return message[:_MOST_TEXT]
    return f"{match[1]}{match[3] or ''}"[:_MOST_TEXT]


def _listed(causes: Causes) -> str:
    return "; ".join(f"{field} {message}".strip() for field, message in causes)


def _seconds(header: str | None) -> float:
    try:
        pause_s = float(header or _PAUSE_S)
    except ValueError:  # a date, which only proxies in front of an API server send
        return _PAUSE_S
    return _PAUSE_S if math.isnan(pause_s) else min(max(pause_s, 0.0), _LONGEST_PAUSE_S)
