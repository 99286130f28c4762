"""Documents of every kind that is read, with one or two fields that their author got wrong.

Pure: one seed, the same documents. `planted(Random(7), 100)` makes a hundred of them.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

from jsonschema_rs import Draft202012Validator

from reconciler.api.kinds import KINDS
from reconciler.api.meta import API_VERSION
from reconciler.foreign_kinds import READ
from reconciler.source.validators import validator
from tests.support.fleets import document, model, node, service

Path = tuple[str | int, ...]
Schema = Mapping[str, Any]

MAC, POOL = "mac", "pool"  # an agent's node and a cluster's, both in VALID
CLUSTER = "prod"
MEMBERS = ("one", "two")  # services that a planted ModelPool is about
VALID: Mapping[str, str] = {
    "nodes/mac.yaml": node(MAC),
    "nodes/pool.yaml": document("FleetNode", POOL, {"kubernetes": {"cluster": CLUSTER}}),
    "models/gemma.yaml": model("gemma"),
    "models/web.yaml": document(
        "Model", "gemma", {"source": "https://models.test/w.gguf"}, namespace="team-b"
    ),
    "services/chat.yaml": service("chat", placement={"nodes": [MAC]}, endpoint={"port": 8080}),
    "services/code.yaml": service("code", placement={"nodes": [MAC]}),
    "services/web.yaml": document(
        "InferenceService",
        "web",
        {"modelRef": "gemma", "placement": {"nodes": [POOL]}},
        namespace="team-b",
    ),
    "services/bare.yaml": service("bare", placement={"nodes": [POOL]}),
    **{f"services/{name}.yaml": service(name, placement={"nodes": [MAC]}) for name in MEMBERS},
}
"""A fleet in which nothing is wrong."""

_MEMBERS = [{"inferenceServiceRef": {"name": name}} for name in MEMBERS]
_SPECS: Mapping[str, dict[str, Any]] = {
    "InferenceService": {"modelRef": "gemma"},
    "Model": {"source": "https://models.test/p.gguf"},
    "FleetNode": {"agent": {}},
    "Fleet": {},
    "ModelPool": {"members": _MEMBERS},
    "ModelRouter": {"backends": [{"name": "a", "inferenceServiceRef": {"name": "chat"}}]},
    "ModelDeployment": {"model": "hf://org/m-GGUF/m.gguf", "backend": "llamacpp"},
}
_GROUPS = {"ModelDeployment": "ai.flexinfer/v1alpha1"}
_STRANGE = ("nosuch", "foo", "apiKey", "owner", "serviceAccountName", "0", "a.b", "")
_TEXTS = ("x", "30s", "1Gi", "auto", "unified", "https://x.test/m", "/data", "0" * 64, "a" * 40,
          "192.168.1.5", ">=0.1", "http", "nvidia.com/gpu")  # fmt: skip
_MOST_DEPTH = 7


class Planted(NamedTuple):
    """A document, and the places of the mistakes in it. `of_schema`: the kind's schema refuses
    it."""

    kind: str
    content: dict[str, Any]
    places: tuple[Path, ...]
    how: str
    of_schema: bool

    @property
    def text(self) -> str:
        """One line for each field of the spec."""
        lines = []
        for key, value in self.content.items():
            if key == "spec" and isinstance(value, dict) and value:
                lines.append("spec:")
                lines += [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()]
            else:
                lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
        return "\n".join(lines) + "\n"

    @property
    def lines(self) -> range:
        return range(1, self.text.count("\n") + 1)

    def __str__(self) -> str:
        return f"{self.kind}, {self.how}:\n{self.text[:1500]}"


def planted(chance: Random, count: int) -> Iterator[Planted]:
    """So many documents: each place of each kind before any a second time."""
    kinds = [*KINDS, *READ]
    waiting: dict[str, list[Path]] = {kind: [] for kind in kinds}
    weights = [len(_places_of(kind)) for kind in kinds]
    made = 0
    while made < count:
        kind = chance.choices(kinds, weights)[0]
        if not waiting[kind]:
            waiting[kind] = chance.sample(_places_of(kind), len(_places_of(kind)))
        if one := _plant(kind, f"planted-{made}", waiting[kind].pop(), chance):
            made += 1
            yield one


def _plant(kind: str, name: str, place: Path, chance: Random) -> Planted | None:
    content = base(kind, name, chance)
    wanted = [place]
    if chance.random() < 0.3:
        wanted.append(chance.choice(_places_of(kind)))
    places, how = [], []
    for at in wanted:
        is_filled = _fill(kind, content, at, chance)
        # What it is in may be wrong, too, where no valid value was found for that.
        places.append(at if validator(kind).is_valid(content) else at[:2])
        how.append(_break(kind, content, at, chance) if is_filled else "")
    if not all(how):
        return None
    is_wrong = not validator(kind).is_valid(content)
    return Planted(kind, content, tuple(places), " and ".join(how), is_wrong)


def base(kind: str, name: str, chance: Random) -> dict[str, Any]:
    """A valid document, of a service with or without a node that is named."""
    spec = copy.deepcopy(_SPECS[kind])
    if kind == "InferenceService":
        if nodes := chance.choice(([MAC], [POOL], [])):
            spec["placement"] = {"nodes": nodes}
        if chance.random() < 0.2:
            spec = {**spec, "runtime": "custom", "image": "x"} | {"modelRef": "gemma"}
        elif chance.random() < 0.2:
            spec["runtime"] = chance.choice(("vllm", "llamacpp-router", "mlx-server"))
        if spec.get("runtime") == "llamacpp-router":
            spec["models"] = [{"name": spec.pop("modelRef")}]
    if kind == "FleetNode" and chance.random() < 0.4:
        spec = {"kubernetes": {"cluster": CLUSTER}}
    metadata: dict[str, Any] = {"name": name}
    if chance.random() < 0.2:
        metadata["namespace"] = "team-b"
    version = _GROUPS.get(kind, API_VERSION)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _fill(kind: str, content: dict[str, Any], place: Path, chance: Random) -> bool:
    """Put in what the field at a place is in, valid as far as that can be."""
    root = validator(kind).schema
    return all(
        _at(content, place[:end]) is not _NOTHING
        or _put(content, place[:end], sample(root, _schema_at(root, place[:end]), chance))
        for end in range(2, len(place))
    )


def _break(kind: str, content: dict[str, Any], place: Path, chance: Random) -> str:
    """Make the field at a place wrong; how, or nothing where that cannot be."""
    root = validator(kind).schema
    shape = chance.choice(_SHAPES)
    where = ".".join(map(str, place))
    if shape == "absent":
        inside, last = _at(content, place[:-1]), place[-1]
        if not _has(inside, last):
            return ""
        del inside[last]
        return f"{where} absent"
    if shape == "unknown":
        inside = _at(content, place)
        if inside is _NOTHING:
            inside = sample(root, _schema_at(root, place), chance)
        if not isinstance(inside, dict):
            inside = {}
        name = chance.choice(_STRANGE)
        inside = {**inside, name: chance.choice((1, "x", None, {}))}
        return f"{where} with {name!r}" if _put(content, place, inside) else ""
    if shape == "as it may be":
        value = sample(root, _schema_at(root, place), chance)
    else:
        value = copy.deepcopy(chance.choice(_VALUES[shape]))
    return f"{where} {shape}" if _put(content, place, value) else ""


_VALUES: Mapping[str, tuple[Any, ...]] = {
    "null": (None,),
    "empty": ("", [], {}),
    "another type": (7, -1, 0.5, True, "x", ["x"], {"a": "b"}, "8080", "2026-01-01"),
    "nested": ({"a": {"b": {"c": 1}}}, [[["x"]]], {"name": ["x"]}, {"name": {"name": "x"}}),
    "a list": (["x", 1, None], [{}], [{"name": "x"}], [None], [{"name": "v"}, {"name": "v"}]),
    "huge": ("x" * 3000, 2**70, -(2**70), 1e300, ["x"] * 300, {f"k{i}": i for i in range(300)}),
}
_SHAPES = ("absent", "unknown", "unknown", "as it may be", "as it may be", *_VALUES)


@functools.cache
def _places_of(kind: str) -> tuple[Path, ...]:
    root = validator(kind).schema
    found = dict.fromkeys(_places(root, root, (), 0))
    return tuple(place for place in found if place[:1] in (("spec",), ("metadata",)))


def _places(root: Schema, schema: Schema, path: Path, depth: int) -> Iterator[Path]:
    schema = _target(root, schema)
    if path:
        yield path
    if depth > _MOST_DEPTH:
        return
    for name, inside in schema.get("properties", {}).items():
        yield from _places(root, inside, (*path, name), depth + 1)
    if "items" in schema:
        yield from _places(root, schema["items"], (*path, 0), depth + 1)
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from _places(root, schema["additionalProperties"], (*path, "key"), depth + 1)
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _places(root, choice, path, depth)


def _target(root: Schema, schema: Schema) -> Schema:
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema


def _schema_at(root: Schema, path: Path) -> Schema:
    schema: Schema = root
    for step in path:
        schema = _step(root, schema, step) or {}
    return schema


def _step(root: Schema, schema: Schema, step: str | int) -> Schema | None:
    schema = _target(root, schema)
    if isinstance(step, int) and "items" in schema:
        return schema["items"]  # type: ignore[no-any-return]  # JSON
    if step in schema.get("properties", {}):
        return schema["properties"][step]  # type: ignore[no-any-return]
    if step == "key" and isinstance(schema.get("additionalProperties"), Mapping):
        return schema["additionalProperties"]  # type: ignore[no-any-return]
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if (found := _step(root, choice, step)) is not None:
            return found
    return None


def sample(root: Schema, schema: Schema, chance: Random) -> Any:
    """A value that a part of a schema takes, with every field of it, where one is found."""
    schema = _target(root, schema)
    choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if choices and "properties" not in schema:
        known = [c for c in choices if _target(root, c).get("type") != "null"]
        return sample(root, chance.choice(known or choices), chance)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        wanted = schema.get("properties", {})
        needed = schema.get("required", ())
        return {
            name: sample(root, inside, chance)
            for name, inside in wanted.items()
            if name in needed or chance.random() < 0.5
        }
    if kind == "array":
        return [sample(root, schema.get("items", {}), chance)]
    if kind in ("integer", "number"):
        return next((n for n in (1, 2, 8, 1024, 0, 0.5, 16384, 1_000_000) if _takes(schema, n)), 1)
    if kind == "boolean":
        return True
    return next((text for text in _TEXTS if _takes(schema, text)), "x")


def _takes(schema: Schema, value: object) -> bool:
    plain = {key: part for key, part in schema.items() if not key.startswith("$")}
    return _compiled(json.dumps(plain)).is_valid(value)


@functools.cache
def _compiled(schema: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema))


_NOTHING = object()


def _at(content: Any, path: Path) -> Any:
    for step in path:
        if not _has(content, step):
            return _NOTHING
        content = content[step]
    return content


def _has(content: object, step: str | int) -> bool:
    if isinstance(content, list):
        return isinstance(step, int) and step < len(content)
    return isinstance(content, dict) and step in content


def _put(content: dict[str, Any], path: Path, value: object) -> bool:
    """Set a value; False: what it would be in is not there."""
    inside, last = _at(content, path[:-1]), path[-1]
    if isinstance(inside, dict):
        inside[str(last)] = value
    elif isinstance(inside, list) and isinstance(last, int) and last <= len(inside):
        inside[last : last + 1] = [value]
    else:
        return False
    return True
