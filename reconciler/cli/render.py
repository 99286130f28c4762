"""What the fleet's services become: each one's command, in which what only a node knows stands as
{words}; with -o DIR the objects of its clusters as files, DIR/CLUSTER/NAMESPACE/SERVICE.yaml, for
Flux or Argo CD; with --images the container images, by runtime and accelerator. It opens no
connection.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from reconciler.api.errors import UsageError
from reconciler.cli.options import check_output
from reconciler.console.edge import Exit, tell

if TYPE_CHECKING:
    from reconciler.api.meta import ObjectRef
    from reconciler.api.problem import Finding
    from reconciler.fleet.command import Command
    from reconciler.fleet.workload import Workload
    from reconciler.loop.desired import Desired
    from reconciler.runtimes.runtime import Runtime

T = TypeVar("T")
_FORMATS = ("text", "json")
_NO_FOLDERS = ("yaml", "yml", "sarif", "github", "markdown", "md", "wide", "name")


EXAMPLES = {
    "reconcile render": "the command line of each service",
    "reconcile render --cluster prod -o manifests": "its objects as files, for Flux or Argo CD",
    "reconcile render --images": "the container images that its pods need",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--images", action="store_true", help="list the container images that the fleet may run"
    )


def run(args: argparse.Namespace) -> int:
    """One command a service and node; or files; or images. Raises InvalidFleet, UsageError."""
    if args.images or args.output in (*_FORMATS, *_NO_FOLDERS):
        check_output(args, *_FORMATS)
    desired = _desired(args)
    if args.images:
        return _print_images(args, desired)
    if args.output not in _FORMATS:
        return _write_files(args, desired)
    return _print_commands(args, desired)


def _desired(args: argparse.Namespace) -> Desired:
    from reconciler.cli.fleet import read_desired
    from reconciler.cli.overrides import with_defaults
    from reconciler.console.option import source_of
    from reconciler.placement.pods import InCluster

    if args.fleet.startswith("cluster://"):
        raise UsageError(f"-C {args.fleet}: give the repository; this opens no connection")
    clusters = _clusters(args)
    source = source_of(args, args.fleet, working_tree=True)
    defaults = with_defaults(args)
    if len(clusters) != 1:
        return read_desired(source, overrides=defaults)
    in_cluster = InCluster(clusters[0])
    return read_desired(source, overrides=lambda fleet: defaults(in_cluster(fleet)))


def _clusters(args: argparse.Namespace) -> tuple[str, ...]:
    """The names that --cluster gives, without their contexts: nothing is asked."""
    return tuple(dict.fromkeys(word.partition("=")[0] for word in args.cluster))


def _print_commands(args: argparse.Namespace, desired: Desired) -> int:
    from reconciler.runtimes import RUNTIMES

    def commands(desired: Desired) -> list[tuple[Workload, Command]]:
        in_pods = commands_in_pods(desired)
        return [
            (w, in_pods.get(w.ref) or _left_open(w, RUNTIMES[w.runtime]))
            for w in desired.assignment.workloads
        ]

    rendered = rendered_of(desired, _services(desired), commands)
    if args.output == "json":
        print(json.dumps([_as_json(*pair) for pair in rendered], indent=2))
        return Exit.OK
    from reconciler.report.terminal import printable

    for workload, command in rendered:
        print(f"# {workload.ref.label} on {workload.node}")
        for name, value in command.env.items():
            print(f"{name}={shlex.quote(printable(value))} \\")
        print(shlex.join(map(printable, command.argv)))
        for name, text in command.files.items():
            print(f"\n# {{dir}}/{name}\n" + "\n".join(map(printable, text.split("\n"))))
    return Exit.OK


def rendered_of(desired: Desired, refs: Sequence[ObjectRef], make: Callable[[Desired], T]) -> T:
    """Return `make` of the revision with these services alone. Raises InvalidFleet with the
    services for which this program fails."""
    from reconciler.api.errors import InvalidFleet
    from reconciler.api.isolated import INTERNAL, Crash, isolated
    from reconciler.api.problem import Finding

    outcome = isolated(refs, lambda some: make(desired.only(some)))
    failed = dict.fromkeys(refs, outcome.message) if isinstance(outcome, Crash) else outcome[1]
    if failed or isinstance(outcome, Crash):
        findings = (Finding(INTERNAL, ref, "", why) for ref, why in failed.items())
        raise InvalidFleet(tuple(map(desired.loaded.problem, findings)))
    return outcome[0]


def _services(desired: Desired) -> list[ObjectRef]:
    return sorted({workload.ref for workload in desired.assignment.workloads})


def _left_open(workload: Workload, runtime: Runtime) -> Command:
    return runtime.command(workload, runtime.open_facts)


def commands_in_pods(desired: Desired) -> dict[ObjectRef, Command]:
    """The commands of services on clusters: a container's facts are known before there is one."""
    clusters = {w.cluster for w in desired.assignment.workloads if w.cluster is not None}
    if not clusters:
        return {}
    from reconciler.kube.render.placed import placed
    from reconciler.kube.render.subject import Subject

    services = (p for cluster in sorted(clusters) for p in placed(desired, cluster))
    return {p.workload.ref: Subject.of(p).command for p in services}


def _as_json(workload: Workload, command: Command) -> dict[str, object]:
    from reconciler.report.plan_json import ref_json

    return {
        "ref": ref_json(workload.ref),
        "node": workload.node,
        "argv": list(command.argv),
        "env": dict(command.env),
        "files": dict(command.files),
    }


def _write_files(args: argparse.Namespace, desired: Desired) -> int:
    """Exit 3 where services are held: their files stay as they are."""
    from reconciler.cli.rendered import write_folder
    from reconciler.kube.render.files import files_of, held_files, warnings_of
    from reconciler.source.address import parse_address

    address = parse_address(args.fleet)
    url = address.shown if address.path is None else None  # without a login, if it had one
    clusters = _clusters(args)
    root = Path(args.output)
    files = rendered_of(desired, _services(desired), lambda some: files_of(some, clusters, url))
    _say(desired, warnings_of(desired, clusters, url))
    done = write_folder(root, files, held_files(desired, clusters))
    for path in done.written:
        print(f"written  {root / path}")
    for path in done.removed:
        print(f"removed  {root / path}")
    print(f"{len(done.written)} written, {len(done.removed)} removed, {done.unchanged} unchanged")
    return Exit.BLOCKED if desired.assignment.holds else Exit.OK


def _say(desired: Desired, warnings: Sequence[Finding]) -> None:
    """What stays as it is, and what will not work, to stderr."""
    from reconciler.api.problem import DECIDING
    from reconciler.report.terminal import printable

    findings = [hold.finding for hold in desired.assignment.holds]
    findings += [f for f in desired.assignment.warnings if f.rule in DECIDING]
    for finding in (*findings, *warnings):
        problem = desired.loaded.problem(finding)
        tell(printable(f"{problem} ({problem.severity} {problem.rule})"))


def _print_images(args: argparse.Namespace, desired: Desired) -> int:
    from reconciler.kube.render.images import images_of
    from reconciler.report.terminal import printable

    rows = rendered_of(desired, _services(desired), images_of)
    if args.output == "json":
        print(json.dumps([row.as_json for row in rows], indent=2))
        return Exit.OK
    for row in rows:
        users = ", ".join(ref.label for ref in row.services) or "-"
        named = f"{row.runtime:<16} {row.accelerator:<8} {row.image}  ({row.stated_by})  {users}"
        print(printable(named))
    return Exit.OK
