"""What a change downloads: each model once for each node, however many services share it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from reconciler.core.observation import Instance, Observation, TargetState
from reconciler.core.plan import Change
from reconciler.fleet.model_file import known_by
from reconciler.fleet.workload import Workload


def download_bytes(want: Workload, state: TargetState, have: Instance | None = None) -> int | None:
    """What has to come; None where its size is not known. A claim in a cluster has what `have` was
    started from."""
    return _sum(_missing(want, state, have))


def is_missing(want: Workload, state: TargetState) -> bool:
    """Whether one of its models is not there, also one that is served where it lies."""
    return any(state.cached.isdisjoint(model.identities) for model in want.model_files)


def charged_once(changes: Iterable[Change], observed: Observation) -> list[Change]:
    """The changes in their order; on a node, which has one store, the first that needs a model is
    charged for it. A pod has a store of its own."""
    charged: defaultdict[str, set[str]] = defaultdict(set)
    result = []
    for change in changes:
        want, state = change.desired, observed.targets.get(change.target)
        if want is not None and want.pool is None and state and change.impact.download_bytes != 0:
            missing = _missing(want, state, None)
            rest = {key: size for key, size in missing.items() if key not in charged[change.target]}
            charged[change.target].update(rest)
            change = replace(change, impact=replace(change.impact, download_bytes=_sum(rest)))
        result.append(change)
    return result


def _missing(want: Workload, state: TargetState, have: Instance | None) -> Mapping[str, int | None]:
    """Its models that are not there, by what they are known by, with their sizes."""
    is_kept = have is not None and want.pool is not None and want.pool.is_kept
    here = state.cached | (known_by(have.inputs) if have and is_kept else frozenset())
    return {
        model.identities[0]: 0 if model.in_place else model.size_bytes
        for model in want.model_files
        if here.isdisjoint(model.identities)
    }


def _sum(sizes: Mapping[str, int | None]) -> int | None:
    known = [size for size in sizes.values() if size is not None]
    return sum(known) if len(known) == len(sizes) else None
