"""Which repository the markdown of a plan or of problems links into."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from reconciler.forges.job import job_of, links_to, repository_of_remote
from reconciler.report.links import Links
from reconciler.source.address import parse_address
from reconciler.source.command import read_git


def links_of(args: argparse.Namespace, head: str | None) -> Links:
    """What --repository says, else the CI job about its own checkout, else the git remote.
    `head`: the commit whose files are looked at."""
    if args.repository is not None:
        return links_to(args.repository, head)
    path = parse_address(args.fleet).path
    if path is None:
        return links_to(repository_of_remote(args.fleet), head)
    stated = job_of(os.environ).repository
    return links_to(stated or repository_of_remote(_remote(path)), head)


def _remote(folder: Path) -> str:
    """The address of `origin`; empty where there is none."""
    done = read_git(folder, "config", "--get", "remote.origin.url")
    return done.text if done.code == 0 else ""
