"""Documents as commands write them into a fleet, for people to go on with. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from reconciler.api.meta import API_VERSION

SCHEMA_FILE = ".schemas/fleet.json"  # in the fleet: a path on one machine is of no use on others


def document(
    kind: str, name: str, spec: Mapping[str, object], *, above: str = "", below: Iterable[str] = ()
) -> str:
    """One document; a field of None is left out, and texts are as YAML has them. `above` says what
    it is; `below` are lines of spec that one may want next, each with what it does."""
    lines = [f"  {key}: {value}\n" for key, value in spec.items() if value is not None]
    lines += [f"  # {line}\n" for line in below]
    head = f"apiVersion: {API_VERSION}\nkind: {kind}\nmetadata:\n  name: {name}\nspec:\n"
    return comment(above) + head + "".join(lines)


def comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())


def with_schema(path: str, text: str) -> str:
    """A file of a fleet for editors with the YAML language server."""
    up = "../" * path.count("/")
    return f"# yaml-language-server: $schema={up}{SCHEMA_FILE}\n{text}"


def scalar(text: str) -> str:
    """Plain where YAML reads that as the same string, else quoted."""
    return (
        text if re.fullmatch(r"[A-Za-z][\w./@=+~-]*(://[\w./@=+~-]*)?", text) else json.dumps(text)
    )
