"""This machine as a FleetNode document: its hardware, and the runtimes that it can run now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.engines.capability import find_runtimes
from agent.machine.probe import node_name, probe
from reconciler.api.meta import API_VERSION


def described(
    name: str | None, certificate_sha256: str | None, programs: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The document as JSON has it; `name`: the host's without one. `certificate_sha256`: of an
    agent that listens off loopback, or did. `programs` are paths of engines that a person chose,
    by the program's name."""
    agent = {"expose": "none"}
    if certificate_sha256:
        agent["certSha256"] = certificate_sha256
    hardware = probe().model_dump(by_alias=True, mode="json", exclude_none=True)
    runtimes = [found.name for found in find_runtimes(programs or {})[0]]
    return {
        "apiVersion": API_VERSION,
        "kind": "FleetNode",
        "metadata": {"name": name or node_name()},
        "spec": {"agent": agent, "runtimes": runtimes, "hardware": hardware},
    }


def stated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without lists and mappings that are empty."""
    inner = {k: stated(v) if isinstance(v, dict) else v for k, v in values.items()}
    return {key: value for key, value in inner.items() if value not in ({}, [])}
