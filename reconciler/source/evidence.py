"""Measured speeds as files of a fleet's repository: `bench/KEY.yaml`, one for each key.

Evidence that cannot be read, that lies under another key's name, or whose time is over is said and
never used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reconciler.api.benchmark import BenchmarkResult, read_result
from reconciler.api.errors import BenchmarkError
from reconciler.source.documents import read_foreign
from reconciler.source.folders import NOT_FOLLOWED, Folders

FOLDER = "bench"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Evidence:
    """One file, by its path below the fleet. `refused` says why it is not used."""

    path: str
    result: BenchmarkResult | None
    refused: str | None = None


def evidence_path(result: BenchmarkResult) -> str:
    return f"{FOLDER}/{result.key.short}.yaml"


def read_evidence(root: Path, now: float) -> tuple[Evidence, ...]:
    """Every file of evidence of a fleet, in order. No link is followed: it may be anybody's."""
    if not os.path.lexists(root / FOLDER):
        return ()
    try:
        with Folders(root) as folders:
            names = folders.names(FOLDER)
            paths = [f"{FOLDER}/{name}" for name in names if name.endswith(".yaml")]
            return tuple(_read(folders, path, now) for path in paths)
    except OSError as error:
        is_link = error.errno in NOT_FOLLOWED
        why = "links are never followed" if is_link else error.strerror
        return (Evidence(FOLDER, None, f"{FOLDER} cannot be read: {why}"),)


def superseded(
    evidence: Iterable[Evidence], newer: Iterable[BenchmarkResult]
) -> tuple[tuple[str, str], ...]:
    """Files of evidence in whose place another result has come, with why: the same model on the
    same devices has another build or other settings now."""
    results = tuple(newer)
    replaced = []
    for each in evidence:
        if each.result is None or each.refused is not None:
            continue
        old = each.result
        for new in results:
            of_one = (old.key.model, old.key.device, old.service) == (
                new.key.model,
                new.key.device,
                new.service,
            )
            if of_one and (why := old.stale(old.measured_at, new.key)):
                replaced.append((each.path, f"{why} than {new.service} has now"))
                break
    return tuple(replaced)


def _read(folders: Folders, path: str, now: float) -> Evidence:
    try:
        data = folders.read(path, _MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise BenchmarkError(f"{path} is no benchmark result (it is too large); remove it")
        documents = read_foreign(data)
        if len(documents) != 1:
            raise BenchmarkError(
                f"{path} is no benchmark result (it has {len(documents)} documents); remove it, and"
                " measure again"
            )
        result = read_result(documents[0], path)
    except OSError as error:
        why = "it is no regular file" if error.errno in NOT_FOLLOWED else error.strerror
        return Evidence(path, None, f"{path} cannot be read: {why}")
    except ValueError as error:
        return Evidence(path, None, f"{path} is no benchmark result ({error}); remove it")
    except BenchmarkError as error:
        return Evidence(path, None, str(error))
    if evidence_path(result) != path:
        name = evidence_path(result)
        return Evidence(path, result, f"{path} holds the result of {name}; rename or remove it")
    stale = result.stale(now)
    return Evidence(path, result, f"{path}: {stale}; measure again" if stale else None)
