"""Parts of a live object that may be secrets and are never shown. Pure.

The fleet's own values are in its repository for all to read. Values that others put into our
objects are not: `kubectl set env chat HF_TOKEN=...` must not carry the token into plans, logs,
events and statuses. So every part of such a value that can hold a secret is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.core.plan import SENSITIVE
from reconciler.kube.diff.managed import Json, Path
from reconciler.source.address import redact_url

# Fields that often contain keys, with everything in them except these names.
_PRIVATE = frozenset(
    {"annotations", "args", "binaryData", "command", "data", "env", "extraArgs", "httpHeaders"}
    | {"options", "parameters", "runtimeOptions", "stringData", "volumeAttributes"}
)
_NAMES = frozenset({"name", "key", "fieldPath", "secretName"})  # of something, and not its value
_SAYS_SO = re.compile(r"token|secret|password|passwd|credential|api_?-?key", re.IGNORECASE)
_LEAST = 8


def shown(value: Json, path: Path, declared: Json = None) -> Json:
    """A live value of another owner, with parts replaced that may be secret. Values that are also
    in the declared value are not secret."""
    names = [key[2:] for key in path if key.startswith("f:")]
    return _shown(value, names, frozenset(_texts(declared)))


def _shown(value: Json, names: list[str], public: frozenset[str]) -> Json:
    if isinstance(value, Mapping):
        return {name: _shown(part, [*names, str(name)], public) for name, part in value.items()}
    if isinstance(value, list):
        return [_shown(part, names, public) for part in value]
    if isinstance(value, str) and value and value not in public:
        return SENSITIVE if _is_private(names) else redact_url(value)
    return value


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def _is_private(names: list[str]) -> bool:
    """Judged by the names of the fields on its path."""
    inside = next((i for i, name in enumerate(names) if name in _PRIVATE), None)
    is_name = bool(names) and names[-1] in _NAMES
    if inside is None:
        return not is_name and any(_SAYS_SO.search(name) for name in names)
    return not (is_name and names[inside] == "env")


def scrubbed(text: str, live: Mapping[str, Any] | None, ours: Mapping[str, Any]) -> str:
    """An API server's message about an object, without the values that `shown` hides: admission may
    repeat them. `ours` is what the fleet declares."""
    private = _strings(live or {}, []) - _strings(ours, [])
    for value in sorted(private, key=len, reverse=True):
        text = text.replace(value, SENSITIVE)
    return text


def _strings(value: Json, names: list[str]) -> set[str]:
    """The strings that are hidden; those shorter than a key cannot be told from ordinary words."""
    if isinstance(value, Mapping):
        return {s for name, part in value.items() for s in _strings(part, [*names, str(name)])}
    if isinstance(value, list):
        return {text for part in value for text in _strings(part, names)}
    is_hidden = isinstance(value, str) and len(value) >= _LEAST and _is_private(names)
    return {value} if is_hidden else set()
