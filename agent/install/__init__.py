"""The agent as a service of the machine: what is written where, and which commands make it live."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Scope = Literal["user", "system"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The service to install. `argv` is the agent's whole command line; `path` the PATH that it is
    to look for engines on, since a service manager has a short one of its own."""

    scope: Scope
    argv: tuple[str, ...]
    user: str  # whose models they are
    uid: int
    home: Path
    path: str
    log: Path  # for managers that keep no journal


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the service manager. `may_fail`: what it is to bring about may be so already.
    `must_fail`: it asks for what is to be gone. Tried again for `tried_for_s` until it is so."""

    argv: tuple[str, ...]
    may_fail: bool = False
    must_fail: bool = False
    tried_for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Unit:
    """A service as its manager wants it: a file, and commands.

    `load` makes a new or changed file live and starts the agent; `unload` ends the agent and leaves
    the models running. Both may be run again. `folders` are to be there before `load`.
    """

    file: Path
    text: str
    load: tuple[Step, ...]
    unload: tuple[Step, ...]
    after: tuple[Step, ...]  # once the file is removed
    starts: str  # when models come up, for people
    folders: tuple[Path, ...] = ()
