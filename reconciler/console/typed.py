"""What people type that means something to other tools, and what does that here. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from types import MappingProxyType

_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "--json": "-o json",
        "--format": "-o",
        "-w": "--follow",
        "--watch": "--follow",
        "-p": "--previous",
        "--lines": "--tail",
        "-n": "NAMESPACE/NAME",
        "--namespace": "NAMESPACE/NAME",
        "-f": "-C FOLDER",
        "--file": "-C FOLDER",
        "--filename": "-C FOLDER",
        "--directory": "-C FOLDER",
        "-V": "`reconcile version`",
        "-v": "`reconcile version`",
        "--dry-run": "`reconcile plan`",
    }
)
"""An option of kubectl's, docker's or others' -> what says that here, where a command has it."""

_NEEDLESS = frozenset({"-y", "--yes", "--force", "--auto-approve"})  # nothing is asked

_ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("ls", "show", "get", "ps", "images"), "list"),
        **dict.fromkeys(("remove", "delete", "del"), "rm"),
        **dict.fromkeys(("prune", "clean", "cleanup"), "gc"),
        **dict.fromkeys(("add", "put", "load", "create"), "import"),
        **dict.fromkeys(("check", "validate", "fsck"), "verify"),
        **dict.fromkeys(("upload", "publish"), "push"),
    }
)
"""A word of others for what a command does of several things -> ours."""

_BESIDES: Mapping[str, str] = MappingProxyType(
    {
        "reconcile run": "`reconcile ask NAME` asks a model, `reconcile deploy MODEL` adds one",
    }
)
"""Commands that other tools name something with -> what is meant then."""


def of_unknown(
    unknown: Sequence[str], command: str, options: Collection[str], *, takes_words: bool
) -> str:
    """What may be meant by words that a command does not take, in brackets; empty: no idea.
    `options` are those that it has; `takes_words`: beside them it takes others."""
    option = next((word for word in unknown if word.startswith("-")), None)
    if option is None:
        is_of_all = "-C" in options and not takes_words
        of_all = "it is about the whole fleet, which -C FOLDER names" if is_of_all else ""
        return _bracketed(_BESIDES.get(command, of_all))
    name = option.partition("=")[0]
    if name in _NEEDLESS:
        return _bracketed(f"nothing is asked: leave {name} out")
    meant = _OPTIONS.get(name)
    if meant is None or (meant.startswith("-") and meant.split()[0] not in options):
        near = get_close_matches(name, options, 1, cutoff=0.7)
        meant = near[0] if near else None
    return _bracketed(f"did you mean {meant}?" if meant else "")


def of_choice(word: str, choices: Collection[str]) -> str:
    """The same of a word that is none of the choices."""
    known, near = _ACTIONS.get(word), get_close_matches(word, choices, 1, cutoff=0.6)
    meant = known if known in choices else near[0] if near else None
    return _bracketed(f"did you mean {meant}?" if meant else "")


def of_missing(words: Sequence[str]) -> str:
    """The same where a word is missing that a command needs."""
    behind = [after for before, after in pairwise(words) if before == "--local"]
    if not behind or behind[0].startswith("-"):
        return ""
    return _bracketed(f"{behind[0]} is taken for a node: write --local behind the other words")


def _bracketed(text: str) -> str:
    return f" ({text})" if text else ""
