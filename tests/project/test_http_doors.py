"""Each way to open an HTTP connection past the one policy is refused by the lint."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
RUFF = Path(sys.executable).with_name("ruff")
BANNED = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["ruff"]["lint"][
    "flake8-tidy-imports"
]["banned-api"]

# By what is banned, each way that code is written.
PLANTS = {
    "urllib.request": (
        "import urllib.request\n",
        "from urllib.request import urlopen\n",
        "from urllib import request\n",
    ),
    "http.client.HTTPConnection": (
        "import http.client\nhttp.client.HTTPConnection('a')\n",
        "from http.client import HTTPConnection\n",
    ),
    "http.client.HTTPSConnection": (
        "import http.client\nhttp.client.HTTPSConnection('a')\n",
        "from http.client import HTTPSConnection\n",
    ),
    "socket.create_connection": (
        "import socket\nsocket.create_connection(('a', 1))\n",
        "from socket import create_connection\n",
    ),
    "requests": ("import requests\n", "from requests import get\n"),
    "httpx": ("import httpx\n", "from httpx import Client\n"),
    "urllib3": ("import urllib3\n", "from urllib3 import PoolManager\n"),
    "aiohttp": ("import aiohttp\n",),
}
# The clients that have a policy of their own, as docs/decisions/0092 lists them.
EXCEPTIONS = {
    "agent/process/ports.py": 1,
    "agent/server/ask.py": 1,
    "reconciler/http/connect.py": 1,
    "reconciler/http/exchange.py": 1,
    "reconciler/http/proxies.py": 1,
    "reconciler/kube/client/connection.py": 1,
    "reconciler/models/hop.py": 1,
    "reconciler/models/oci_push.py": 1,
    "reconciler/models/oci_registry.py": 2,
}


@pytest.mark.parametrize("path", ["reconciler/cli/planted.py", "agent/server/planted.py"])
def test_the_lint_refuses_every_other_way_to_open_a_connection(path: str) -> None:
    assert set(PLANTS) == set(BANNED) - {"json.loads"}
    for name, texts in PLANTS.items():
        for text in texts:
            done = subprocess.run(
                (RUFF, "check", "--select", "TID251", "--stdin-filename", path, "-"),
                cwd=REPOSITORY,
                input=text,
                capture_output=True,
                text=True,
                check=False,
            )

            assert f"`{name}" in done.stdout, (text, done.stdout, done.stderr)


def test_the_exceptions_are_those_of_the_decision() -> None:
    found = {}
    for room in ("agent", "reconciler"):
        for path in (REPOSITORY / room).rglob("*.py"):
            text = re.sub(r"json\.loads.*", "", path.read_text())
            if count := text.count("noqa: TID251"):
                found[str(path.relative_to(REPOSITORY))] = count

    assert found == EXCEPTIONS
