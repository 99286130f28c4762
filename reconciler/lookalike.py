"""Names that people read as equal and file systems tell apart."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath


def lookalike(path: str, names_in: Callable[[str], Iterable[str]]) -> str:
    """Name a file or folder that differs from a missing path only in letter case or Unicode form.

    Returns "" if there is none. `names_in` lists a folder ("." is the root of relative paths). It
    may raise OSError.
    """
    whole = PurePosixPath(path)
    for at in (*reversed(whole.parents), whole):
        if not at.name:
            continue
        try:
            names = set(names_in(str(at.parent)))
        except OSError:
            return ""
        if at.name not in names:
            similar = min((n for n in names if _folded(n) == _folded(at.name)), default=None)
            return "" if similar is None else _described(at, similar)
    return ""


def _described(at: PurePosixPath, similar: str) -> str:
    if _composed(similar) == _composed(at.name):
        difference = "Unicode form"
    elif similar.casefold() == at.name.casefold():
        difference = "letter case"
    else:
        difference = "letter case and Unicode form"
    folder = "" if str(at.parent) == "." else f" in {at.parent}"
    return (
        f"the name{folder} is {json.dumps(similar)}, which differs from {json.dumps(at.name)} in"
        f" {difference}; write {json.dumps(similar)}, or rename it"
    )


def _folded(name: str) -> str:
    return _composed(_composed(name).casefold())


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)
