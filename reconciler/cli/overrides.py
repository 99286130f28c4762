"""What the command line says of a fleet that the fleet leaves open."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from reconciler.cli.clusters import in_given_cluster
from reconciler.console.shared import DEFAULTS

if TYPE_CHECKING:
    from reconciler.fleet.fleet import Fleet


def overrides_of(args: argparse.Namespace) -> Callable[[Fleet], Fleet]:
    """Which cluster a pool is in that names none, and what DEFAULTS say. The result raises
    UsageError, see in_given_cluster."""
    in_cluster, defaults = in_given_cluster(args), with_defaults(args)
    return lambda fleet: defaults(in_cluster(fleet))


def with_defaults(args: argparse.Namespace) -> Callable[[Fleet], Fleet]:
    """What DEFAULTS say."""
    given = {option.variable: getattr(args, option.attribute) for option in DEFAULTS}
    defaults = {variable: text for variable, text in given.items() if text}
    if not defaults:
        return lambda fleet: fleet
    from reconciler.placement.defaults import WithDefaults

    return WithDefaults(defaults)
