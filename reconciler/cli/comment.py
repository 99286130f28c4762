"""Write a text, such as `plan -o markdown` prints, as a comment of a pull request. The comment is
found again by its name: the next text takes the place of the first. A CI job of GitHub, Forgejo or
GitLab says by itself which pull request that is; the token is in the forge's variable."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.errors import ForgeError, UsageError, error_text
from reconciler.console.edge import Exit, tell
from reconciler.console.option import add
from reconciler.console.shared import REPOSITORY
from reconciler.console.value import argument, count

if TYPE_CHECKING:
    from reconciler.forges.forge import Forge

EXAMPLES = {
    "reconcile comment plan.md": "in a CI job",
    "reconcile comment plan.md --repository https://codeberg.org/me/fleet --number 12": "elsewhere",
}
_NAME = re.compile(r"[A-Za-z0-9]+([._/-][A-Za-z0-9]+)*")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the text; - reads stdin")
    parser.add_argument(
        "--name",
        default="fleet",
        type=_name,
        help="of the comment, where a pull request has several (default: fleet)",
    )
    parser.add_argument(
        "--number",
        type=argument(count),
        metavar="N",
        help="of the pull request (default: as a CI job says)",
    )
    add(parser, (REPOSITORY,))


def run(args: argparse.Namespace) -> int:
    """Exit 1 where it cannot be written. Raises UsageError, ForgeError."""
    from reconciler.forges.comments import Comments
    from reconciler.forges.job import job_of

    job = job_of(os.environ)
    repository = args.repository or job.repository
    number = args.number or job.number
    if repository is None:
        raise UsageError("no CI job says which repository this is: give --repository")
    if number is None:
        raise UsageError("no CI job says which pull request this is: give --number")
    text = _read(args.file)
    if not text.strip():
        raise UsageError(f"{args.file} is empty: there is nothing to write")
    token = _token(repository.forge, os.environ)
    done = Comments(repository, number, token).put(args.name, text)
    tell(f"the comment of pull request {number} is {done}")
    return Exit.OK


def _name(text: str) -> str:
    if len(text) > 100 or not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError("letters and digits, with one of . _ / - between them")
    return text


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error_text(error, file)}") from error
    return data.decode(errors="replace")


def _token(forge: Forge, environ: Mapping[str, str]) -> str:
    token = next((environ[name].strip() for name in forge.tokens if environ.get(name)), "")
    if not token:
        raise UsageError(f"no token: set {' or '.join(forge.tokens)}")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ForgeError(f"{' or '.join(forge.tokens)} holds no token, which is one word of ASCII")
    return token
