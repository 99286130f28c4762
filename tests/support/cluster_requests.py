"""Plain requests to a test's cluster: what `kubectl get -o json` would print, without its process.

Tests look often and while they wait; a kubectl costs 50 ms of processor time.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from tests.support.wait import PATIENCE_S

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_APPLY = "application/apply-patch+yaml"
_VALUES = {"-n": "namespace", "-l": "labelSelector"}
_SWITCHES = {"-A", "--show-managed-fields"}


class _Kind(NamedTuple):
    prefix: str  # /apis/apps/v1
    version: str  # apps/v1
    plural: str
    kind: str
    is_namespaced: bool


@dataclass(slots=True)
class Requests:
    """One API server, with the rights of a token."""

    port: int
    ca: Path
    token: str
    _kinds: dict[str, _Kind] = field(default_factory=dict)
    _trust: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        self._trust = ssl.create_default_context(cafile=self.ca)

    def get(self, words: Sequence[str]) -> Any | None:
        """What kubectl prints for `get WORDS -o json`; None for words that are left to kubectl.
        AssertionError with what the server said: it has none."""
        wish = _read(words)
        if wish is None:
            return None
        kinds, names, options = wish
        found = [each for kind in kinds.split(",") for each in self._objects(kind, names, options)]
        if "--show-managed-fields" not in options:
            for each in found:
                each["metadata"].pop("managedFields", None)
        return found[0] if names else {"apiVersion": "v1", "kind": "List", "items": found}

    def apply(self, path: str, body: object) -> None:
        """Server-side apply, as kubectl."""
        self._call("PATCH", f"{path}?fieldManager=kubectl&force=true", json.dumps(body))

    def _objects(self, kind: str, names: list[str], options: dict[str, str]) -> Iterator[Any]:
        known = self._kind(kind)
        within = "" if "-A" in options or not known.is_namespaced else "default"
        within = within and f"/namespaces/{options.get('namespace', within)}"
        path = f"{known.prefix}{within}/{known.plural}"
        if names:
            yield self._call("GET", f"{path}/{quote(names[0])}")
            return
        selector = {k: v for k, v in options.items() if k == "labelSelector"}
        for item in self._call("GET", f"{path}?{urlencode(selector)}")["items"]:
            yield {"apiVersion": known.version, "kind": known.kind, **item}

    def _kind(self, name: str) -> _Kind:
        if name.lower() not in self._kinds:
            self._kinds = {**self._served("/apis"), **self._served("/api")}
        assert name.lower() in self._kinds, f"the server has no resource type {name}"
        return self._kinds[name.lower()]

    def _served(self, root: str) -> dict[str, _Kind]:
        """Every kind by each of its names."""
        found: dict[str, _Kind] = {}
        for group in reversed(self._call("GET", root, accept=_AGGREGATED)["items"]):
            for version in reversed(group["versions"]):
                of = "/".join(filter(None, (group["metadata"].get("name"), version["version"])))
                for served in version["resources"]:
                    plural, kind = served["resource"], served["responseKind"]["kind"]
                    entry = _Kind(f"{root}/{of}", of, plural, kind, served["scope"] == "Namespaced")
                    short = (served.get("singularResource"), *served.get("shortNames", ()))
                    long = f"{plural}.{group['metadata'].get('name', '')}"
                    names = filter(None, (plural, kind.lower(), long, *short))
                    found |= dict.fromkeys(names, entry)
        return found

    def _call(
        self, method: str, path: str, body: str | None = None, accept: str = "application/json"
    ) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept}
        headers |= {"Content-Type": _APPLY} if body else {}
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=PATIENCE_S, context=self._trust
        )
        with contextlib.closing(connection):
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                status, text = answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:
                raise AssertionError(f"{method} {path}: {error!r}") from None
        assert status < 300, f"{method} {path}: {text!r}"
        return json.loads(text)


def _read(words: Sequence[str]) -> tuple[str, list[str], dict[str, str]] | None:
    """Kinds, names and options of `kubectl get`; None where it says more than is known here."""
    given = iter(words)
    if next(given, "") != "get":
        return None
    plain, options = list[str](), dict[str, str]()
    for word in given:
        if word in _VALUES:
            options[_VALUES[word]] = next(given)
        elif word in _SWITCHES:
            options[word] = ""
        elif word.startswith("-"):
            return None
        else:
            plain += word.split("/") if "/" in word else [word]
    kinds, *names = plain
    return (kinds, names, options) if len(names) < 2 and not ("," in kinds and names) else None
