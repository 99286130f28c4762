"""The agent as a service of the machine: which files are written, and which commands start it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Scope = Literal["user", "system"]


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """The service to install. `argv` is the agent's whole command line; `path` the PATH on which it
    looks up engines, since a service manager's own is short."""

    scope: Scope
    argv: tuple[str, ...]
    user: str  # whose models they are
    uid: int
    home: Path
    path: str
    log: Path  # for managers that keep no journal


@dataclass(frozen=True, slots=True)
class ManagerCommand:
    """A command of the service manager. `may_fail`: its effect may be there already.
    `must_fail`: it asks for what should be gone. Tried again for `tried_for_s` until it is."""

    argv: tuple[str, ...]
    may_fail: bool = False
    must_fail: bool = False
    tried_for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceUnit:
    """A service as its manager wants it: a file, and commands.

    `load` makes a new or changed file live and starts the agent; `unload` ends the agent and leaves
    the models running. Both may be run again. `folders` are to be there before `load`. `remedies`:
    words of the manager's that tell why it did not work, and what to do; the first row counts.
    """

    file: Path
    text: str
    load: tuple[ManagerCommand, ...]
    unload: tuple[ManagerCommand, ...]
    after: tuple[ManagerCommand, ...]  # once the file is removed
    starts: str  # when models come up, for people
    folders: tuple[Path, ...] = ()
    remedies: tuple[tuple[str, str], ...] = ()
