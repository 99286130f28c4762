"""The first words of `make test`: what this machine lacks, and what will be built. Before pip."""

from __future__ import annotations

import os
import sys

from tests.suite.builds import pending
from tests.support.cache import cache_folder
from tests.support.tools import GIT, missing


def main() -> int:
    builds = () if os.environ.get("T") else pending()  # of a part it is not known yet
    lines = missing([GIT, *(tool for build in builds for tool in build.tools)])
    if lines:
        print("make test cannot start; this machine lacks:", *lines, sep="\n", file=sys.stderr)
        return 1

    if builds:
        minutes = sum(build.minutes for build in builds)
        print(f"make test builds once, and keeps in {cache_folder()}:")
        for build in builds:
            print(f"  {build.what}: about {build.minutes} min")
        print(
            f"Meanwhile it runs what needs none of it: about {minutes} min more than usual on two"
            " cores."
        )
        print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
