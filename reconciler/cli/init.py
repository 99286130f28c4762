"""Write the first fleet of this machine: its node, a model that is on it, and a service.

Nothing is asked that can be seen. Models are looked for in our own store, in Ollama's, LM Studio's
and llama.cpp's, in Hugging Face's cache and in usual folders, and are served where they lie; the
largest that fits is taken, or the one that --model names. Where there is none, a small one is
written, which the first apply downloads. Nothing is applied, and no file is written over.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.api.errors import StateError, UsageError
from reconciler.console.edge import Exit, tell
from reconciler.console.option import add, program_options, programs_of
from reconciler.console.shared import STATE_DIR
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.cli.first_fleet import FirstModel
    from reconciler.source.checkout import Checkout
    from reconciler.source.directory import DirectorySource
    from reconciler.source.worktree import WorktreeSource

EXAMPLES = {
    "reconcile init": "in this folder",
    "reconcile init my-fleet --node laptop": "in another one, with a name for this machine",
    "reconcile init --model qwen3-8b": "one that is here, or one of the catalogue",
    "reconcile init --model hf://org/mini/mini.gguf": "or any other: an address, or a path",
}
_MOST_SHOWN = 12


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default=".", metavar="DIR", help="default: .")
    parser.add_argument(
        "--model",
        metavar="NAME|SOURCE",
        help="a model that is here, one of the catalogue, a path, or hf://, https://, ...",
    )
    parser.add_argument("--node", metavar="NAME", help="of this machine (default: the host's)")
    parser.add_argument("--yes", "-y", action="store_true", help="ask nothing at all")
    add(parser, (STATE_DIR, *program_options()))
    parser.set_defaults(commit=False, push=False)


def run(args: argparse.Namespace) -> int:
    """Exit 0 written, or a fleet is there already; 3 where no model fits, or nobody wants one.
    Raises UsageError, SourceError, StateError, InvalidFleet."""
    from reconciler.cli.first_model import Destination, choose
    from reconciler.source.directory import DirectorySource

    root = Path(args.folder).expanduser().absolute()
    _must_be_for_a_fleet(root, args.folder)
    with _made(root) as source:
        checkout = source.fetch()
        if there := _fleet_in(checkout):
            return _is_there(args, root, there)
        node = _node(args)
        weights = choose(args, Destination(checkout, node))
        if weights is None:
            return Exit.BLOCKED
        _write(root, weights.files(node), args)
    _say_next(root, weights, node, in_git=not isinstance(source, DirectorySource))
    return Exit.OK


def _must_be_for_a_fleet(root: Path, given: str) -> None:
    """Raises UsageError for a file, and for folders with everything below them."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{given}: is a file; name a folder for the fleet")
    if root.resolve() in (Path(root.anchor), Path.home().resolve()):
        raise UsageError(
            f"{root}: every YAML file below it would be read as the fleet's; name a folder of its"
            " own: reconcile init my-fleet"
        )


@contextmanager
def _made(root: Path) -> Iterator[DirectorySource | WorktreeSource]:
    """The folder as it is, made if it is not there, and removed again if nothing came into it."""
    from reconciler.source.directory import DirectorySource
    from reconciler.source.open import cache_dir, open_source
    from reconciler.source.worktree import WorktreeSource

    new = [path for path in (root, *root.parents) if not path.exists()]
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(f"{root}: cannot be made: {error.strerror}") from error
    try:
        source = open_source(str(root), cache_dir=cache_dir(), working_tree=True)
        if not isinstance(source, DirectorySource | WorktreeSource):
            raise UsageError(f"{root}: is a bare repository; clone it, and init in the clone")
        yield source
    finally:
        with contextlib.suppress(OSError):
            for path in new:
                path.rmdir()


def _fleet_in(checkout: Checkout) -> tuple[str, ...]:
    """What the folder's files declare, valid or not."""
    from reconciler.source.load import reader

    loaded = reader()(checkout, frozenset())
    return tuple(f"{o.path}:{o.line} {ref}" for ref, o in sorted(loaded.origins.items())) or tuple(
        str(problem) for problem in loaded.problems if problem.rule != "NothingToCheck"
    )


def _is_there(args: argparse.Namespace, root: Path, there: tuple[str, ...]) -> int:
    folder = _option(root)
    named = "".join(f"\n  {printable(line)}" for line in there[:_MOST_SHOWN])
    more = f"\n  and {len(there) - _MOST_SHOWN} more" if len(there) > _MOST_SHOWN else ""
    tell(f"{root} holds a fleet already, and stays as it is:{named}{more}")
    if args.model or args.node:
        raise UsageError(
            f"nothing was written; a model comes to a fleet by `reconcile deploy NAME"
            f" --local{folder}`"
        )
    tell(f"next: reconcile plan --local{folder}")
    return Exit.OK


def _node(args: argparse.Namespace) -> dict[str, Any]:
    from agent.node.described import described, stated
    from agent.server.tls import certificate_sha256
    from agent.state.directory import state_root

    pin = certificate_sha256(state_root(args.state_dir))
    return stated(described(args.node, pin, programs_of(args)))


def _write(root: Path, files: dict[str, str], args: argparse.Namespace) -> None:
    from reconciler.cli.document import SCHEMA_FILE
    from reconciler.cli.written import FileChange, write
    from reconciler.source.validators import schema_text

    if not (root / SCHEMA_FILE).exists():
        files = files | {SCHEMA_FILE: schema_text("fleet.json")}
    new = {path: FileChange(None, text.encode()) for path, text in files.items()}
    write(root, new, args, "")


def _say_next(root: Path, weights: FirstModel, node: Mapping[str, Any], *, in_git: bool) -> None:
    spec, folder = node["spec"], _option(root)
    engines = ", ".join(spec.get("runtimes", ())) or "no engine"
    tell(printable(f"{node['metadata']['name']}: this machine, with {engines}"))
    tell(printable(f"{weights.service}: serves {weights.name}, {weights.about}"))
    if not weights.is_here:
        from reconciler.models.url import shown

        tell(printable(f"the first apply downloads it: {shown(weights.source)}"))
    if in_git:
        tell("next: git add . && git commit -m 'Serve a model'")
    tell(
        f"next: reconcile plan --local{folder}\n"
        f"      reconcile apply --local{folder}\n"
        f'      reconcile ask {weights.service} "What can you do?" --local{folder}'
    )


def _option(root: Path) -> str:
    """How other commands are told of the folder."""
    here = Path.cwd()
    if root == here:
        return ""
    return f" -C {shlex.quote(str(root.relative_to(here) if here in root.parents else root))}"
