"""Who may see a reconciler's page: on loopback this machine, else who has the token of a file."""

from __future__ import annotations

import codecs
import logging
from functools import partial
from typing import TYPE_CHECKING

from reconciler.page.pages import Pages, not_shown, only_known, only_this_machine
from reconciler.page.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reconciler.page.values import Documents

_LEAST_BYTES = 16  # a person may choose it, and anyone who reaches the port may guess
_MOST_BYTES = 4096
_NO_TOKEN = (
    "The reconciler has no token that a browser could send: --page-token-file names a file with one"
    f" of {_LEAST_BYTES} characters or more."
)
_WHERE = "in the file that the reconciler's --page-token-file names"
_log = logging.getLogger(__name__)


def pages(
    documents: Callable[[], Documents],
    file: Path | None,
    clock: Callable[[], float],
    *,
    is_loopback: bool,
) -> Pages:
    """A file that is named counts on loopback, too."""
    if file is None and is_loopback:
        return Pages(documents, refusal=only_this_machine)
    token = partial(_token, file)
    if file is not None and not file.is_file():  # a Secret may come later
        _log.warning(
            "--page-token-file %s: there is no such file; nobody can sign in until then", file
        )
    session = Session(token, _WHERE, secure=False, clock=clock)
    known = only_known(session)
    return Pages(
        documents,
        session,
        lambda request: known(request) if token() else not_shown(404, _NO_TOKEN),
    )


def _token(file: Path | None) -> bytes | None:
    """Read each time: a Secret's file changes while we run."""
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            token = opened.read(_MOST_BYTES).removeprefix(codecs.BOM_UTF8).strip()
    except OSError as error:
        _log.debug("page token: %s: %s", file, error)
        return None
    return token if len(token) >= _LEAST_BYTES else None
