"""Take the reconciler out of a Kubernetes cluster, with its rights and its definitions.

While the fleet still has objects there, it says which and stops: remove the services from the fleet
first, keep them as they run (--keep-services), or delete them too with the token that is printed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.cli.install import open_one, report
from reconciler.cli.options import check_output
from reconciler.console.edge import Exit, tell
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.kube.install.removal import Remains

_MOST_LISTED = 20


EXAMPLES = {
    "reconcile uninstall --cluster prod": "where nothing of the fleet is left there",
    "reconcile uninstall --cluster prod --keep-services": "and leave what runs as it is",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--keep-services",
        action="store_true",
        help="remove the program and its rights; what runs stays, with its definitions",
    )
    choice.add_argument(
        "--confirm", metavar="TOKEN", help="delete the fleet's objects too, as they were listed"
    )


def run(args: argparse.Namespace) -> int:
    """Exit 0 removed or nothing there, 3 where services stand in the way."""
    check_output(args, "text")
    if args.fleet != ".":
        raise UsageError("-C has nothing to do with it: this removes what `reconcile install` made")
    from reconciler.kube.install.removal import remaining, remove_all, remove_program

    api = open_one(args)
    if args.keep_services:
        counts = report(remove_program(api))
    else:
        remains = remaining(api)
        if remains.has_more and args.confirm != remains.token:
            return _refuse(remains, args.confirm)
        counts = report(remove_all(api, remains))
    if not counts:
        print(f"cluster {api.name}: nothing was installed there")
    return Exit.OK


def _refuse(remains: Remains, token: str | None) -> int:
    if token is not None:
        _say(f"--confirm {token} is for another list: this is what is there now")
    for oid in remains.objects[:_MOST_LISTED]:
        _say(f"still there: {oid.label}")
    if len(remains.objects) > _MOST_LISTED:
        _say(f"and {len(remains.objects) - _MOST_LISTED} more")
    _say(
        "nothing was removed: remove the services from the fleet and let the reconciler follow, or"
        f" use --keep-services, or delete all of these with --confirm {remains.token}"
    )
    return Exit.BLOCKED


def _say(text: str) -> None:
    tell(printable(text))
