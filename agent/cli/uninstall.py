"""Take the agent's service off this machine; drains and stops what it runs, unless told not to."""

from __future__ import annotations

import argparse

from reconciler.console.edge import Exit, show, tell

EXAMPLES = {
    "fleet-agent uninstall": "and stop what it runs",
    "fleet-agent uninstall --dry-run": "only say what would be done",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    from agent.cli.install import add_scope

    add_scope(parser)
    parser.add_argument(
        "--keep-running", action="store_true", help="leave the models running, without an agent"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def run(args: argparse.Namespace) -> int:
    """Exit 0 when the service is gone and, where asked, everything is stopped."""
    from agent.cli.install import carry_out, root_of, unit_for
    from agent.cli.stop import stop_all

    unit, root = unit_for(args, ()), root_of(args)
    installed = unit.file.exists()
    if args.dry_run:
        for step in (*unit.unload, *unit.after) if installed else ():
            print(" ".join(step.argv))
        show(f"would remove {unit.file}" if installed else f"{unit.file}: is not there")
        return Exit.OK
    if installed:
        carry_out(unit.unload)
        unit.file.unlink(missing_ok=True)
        carry_out(unit.after)
        tell(f"removed {unit.file}")
    else:
        tell(f"{unit.file}: is not there, nothing to remove")
    stopped = Exit.OK if args.keep_running else stop_all(root)
    tell(f"models, records and logs stay in {root}; remove it by hand")
    return stopped
