"""JSON Schema of a plan as JSON: what its readers may rely on. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.api.problem import RULES
from reconciler.api.reasons import REASONS
from reconciler.core.plan import Action, Restart
from reconciler.report.plan_json import FORMAT_VERSION


def plan_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of what `plan_json` returns, closed: no field goes undescribed."""
    return {
        "title": "Plan",
        **_closed(
            formatVersion={"const": FORMAT_VERSION},
            revision=_TEXT,
            changes=_list_of(_CHANGE),
            blocked=_list_of(_BLOCKED),
            unreachable=_list_of(_UNREACHABLE),
            stopped=_list_of(_closed(target=_TEXT, ref=_REF, message=_TEXT)),
            summary=_closed(**{str(a): _WHOLE for a in Action}, unchanged=_WHOLE, blocked=_WHOLE),
        ),
    }


def _closed(**properties: object) -> dict[str, Any]:
    """An object with exactly these properties, all required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


_TEXT, _MAYBE_TEXT = {"type": "string"}, {"type": ["string", "null"]}
_WHOLE = {"type": "integer", "minimum": 0}
_MAYBE_WHOLE = {"type": ["integer", "null"], "minimum": 0}
_MAYBE_TIME = {"type": ["number", "null"]}  # seconds since the epoch

_REF = _closed(kind=_TEXT, namespace=_TEXT, name=_TEXT)
_SOURCE = _or_null(_closed(file=_TEXT, line=_WHOLE, commit=_MAYBE_TEXT))
_OBJECT = _or_null(_closed(apiVersion=_TEXT, kind=_TEXT, namespace=_TEXT, name=_TEXT))
_FIELD = _closed(path=_TEXT, before={}, after={}, forcesRestart={"type": "boolean"}, source=_SOURCE)
_POOL = _closed(
    pool=_TEXT,
    beforeBytes=_MAYBE_WHOLE,
    afterBytes=_MAYBE_WHOLE,
    peakBytes=_MAYBE_WHOLE,
    budgetBytes=_MAYBE_WHOLE,
)
_DISK = _closed(
    path=_TEXT, beforeBytes={"type": "integer"}, afterBytes={"type": ["integer", "null"]}
)
_IMPACT = _closed(
    restart={"enum": [str(r) for r in Restart]},
    downloadBytes=_MAYBE_WHOLE,
    memory=_list_of(_POOL),
    disk=_or_null(_DISK),
    downtimeSeconds={"type": ["number", "null"], "minimum": 0},
    downtimeBasis={"enum": ["measured", "unknown"]},
    order=_WHOLE,
    after=_list_of(_REF),
    drainSeconds={"type": ["number", "null"], "minimum": 0},
    stopsFor=_or_null(_REF),
)
_CHANGE = _closed(
    action={"enum": [str(a) for a in Action]},
    target={"type": "string", "pattern": "^(cluster|node)/"},
    ref=_REF,
    object=_OBJECT,
    reason={"enum": sorted(REASONS)},
    message=_TEXT,
    source=_SOURCE,
    fields=_list_of(_FIELD),
    impact=_IMPACT,
    since=_MAYBE_TIME,
    by=_MAYBE_TEXT,
)
_BLOCKED = _closed(
    ref=_REF,
    target=_MAYBE_TEXT,
    reason={"enum": sorted(REASONS.keys() | RULES.keys())},
    message=_TEXT,
    source=_SOURCE,
    holds=_list_of(_REF),
    confirm=_MAYBE_TEXT,
)
_UNREACHABLE = _closed(target=_TEXT, message=_TEXT, seenAt=_MAYBE_TIME)
