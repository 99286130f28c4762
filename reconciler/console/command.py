"""What is known of a command before its module is imported."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

TEXT_OR_JSON = ("text", "json")
PLAN_FORMATS = (*TEXT_OR_JSON, "markdown")


class CommandRow(NamedTuple):
    """One row of a program's table. A module of the same name is the command, and its docstring the
    help.

    `formats` are what -o takes. `makes_no_garbage`: nothing that it makes is garbage before it
    ends. `interleaves`: options may stand between its words. `also_called` are names that other
    tools have for it. `serves`: other programs call it, and hardly ever a person. `logs`: what it
    calls may log.
    """

    summary: str
    formats: tuple[str, ...] = ()
    makes_no_garbage: bool = False
    interleaves: bool = False
    also_called: tuple[str, ...] = ()
    serves: bool = False
    logs: bool = True


OF_OTHER_PROGRAMS: Mapping[str, str] = MappingProxyType(
    {
        # What was, and what is to be again, is in the repository.
        "history": "git log",
        **dict.fromkeys(("rollback", "undo"), "git revert"),
        **dict.fromkeys(("upgrade", "update"), "pip install --upgrade '.[embedded]'"),
        # A field says it.
        "scale": "reconcile explain InferenceService.spec.replicas",
        **dict.fromkeys(("drain", "cordon"), "reconcile explain FleetNode.spec.drain"),
        # Models that are here.
        **dict.fromkeys(("models", "model", "images"), "fleet-agent store list"),
        **{word: f"fleet-agent store {word}" for word in ("verify", "import", "push", "gc")},
        "load": "fleet-agent store import",
        "prune": "fleet-agent store gc",
        "rmi": "fleet-agent store rm",
    }
)
"""What people type of either program -> what does that, or ` or ` between what may."""


def other_names(commands: Mapping[str, CommandRow]) -> dict[str, str]:
    """What other tools call a command -> its name."""
    return {word: name for name, row in commands.items() for word in row.also_called}


def listed(commands: Mapping[str, CommandRow]) -> tuple[tuple[int, str], ...]:
    """The commands as lines of a help, those for people first, each with the column where its
    further lines begin."""
    longest = max(map(len, commands))

    def rows(*, serves: bool) -> tuple[tuple[int, str], ...]:
        return tuple(
            (longest + 4, f"  {name:<{longest}}  {row.summary}")
            for name, row in commands.items()
            if row.serves == serves
        )

    heads = ((0, "commands:"), (0, ""), (0, "commands that serve other programs:"))
    return (heads[0], *rows(serves=False), *heads[1:], *rows(serves=True))
