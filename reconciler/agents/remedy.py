"""What a person does about a machine, in words. Pure."""

from __future__ import annotations


def ends_what_runs(where: str) -> str:
    """The way out: nobody but a person at the machine ends it."""
    return (
        f"`fleet-agent uninstall` {where} ends what runs, or `fleet-agent stop --all` where no"
        " service was installed"
    )
