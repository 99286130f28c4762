"""Settings of every test."""

from __future__ import annotations

import os

from hypothesis import settings

# A machine with other work to do may take any time for one example; and where a result decides
# about a change (CI=true), the same examples are tried each time. Locally every run tries new ones.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
