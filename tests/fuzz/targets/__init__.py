"""The readers that are fuzzed: a file each, with its TARGET, named as the target is."""

from __future__ import annotations

import importlib
import pkgutil

from tests.fuzz.target import Target

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def target_of(name: str) -> Target:
    """Imported when it is asked for: each reader has much below it."""
    target: Target = importlib.import_module(f"tests.fuzz.targets.{name}").TARGET
    assert target.name == name
    return target
