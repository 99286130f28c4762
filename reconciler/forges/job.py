"""What the environment of a CI job says of the repository and its pull request. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from reconciler.forges.forge import FORGES, ForgeRepository, forge_of_host, read_repository
from reconciler.report.links import NO_LINKS, Links

_SCP = re.compile(r"(?:[\w.+-]+@)?([\w.-]+):(?!//)(.+)")


@dataclass(frozen=True, slots=True)
class Job:
    """None: it does not say."""

    repository: ForgeRepository | None = None
    number: int | None = None


def job_of(environ: Mapping[str, str]) -> Job:
    """Forgejo and Gitea say what GitHub does, in GitHub's variables, and who they are."""
    if page := environ.get("CI_MERGE_REQUEST_PROJECT_URL") or environ.get("CI_PROJECT_URL"):
        repository = ForgeRepository(FORGES["gitlab"], page, environ.get("CI_API_V4_URL"))
        return Job(repository, _number(environ.get("CI_MERGE_REQUEST_IID")))
    server, name = environ.get("GITHUB_SERVER_URL"), environ.get("GITHUB_REPOSITORY")
    if not server or not name:
        return Job()
    is_forgejo = any(environ.get(f"{who}_ACTIONS") for who in ("FORGEJO", "GITEA"))
    forge = FORGES["forgejo" if is_forgejo else "github"]
    repository = ForgeRepository(
        forge, f"{server.rstrip('/')}/{name}", environ.get("GITHUB_API_URL") or None
    )
    pull = re.fullmatch(r"refs/pull/(\d+)/\w+", environ.get("GITHUB_REF", ""))
    return Job(repository, _number(pull and pull[1]))


def repository_of_remote(url: str) -> ForgeRepository | None:
    """The page of a git remote, if a forge that we know has it. Logins stay behind."""
    scp = _SCP.fullmatch(url)
    parts = urlsplit(f"ssh://{scp[1]}/{scp[2]}" if scp else url)
    host = parts.hostname or ""
    if parts.scheme not in ("ssh", "https") or forge_of_host(host) is None:
        return None
    port = f":{parts.port}" if parts.scheme == "https" and parts.port else ""
    try:
        return read_repository(f"https://{host}{port}{parts.path}")
    except ValueError:
        return None


def links_to(repository: ForgeRepository | None, head: str | None) -> Links:
    """Braces of the page's own address are none of the template's."""
    if repository is None:
        return NO_LINKS
    page = repository.page.replace("{", "%7B").replace("}", "%7D")
    page = page.replace("(", "%28").replace(")", "%29").replace(" ", "%20")
    return Links(f"{page}{repository.forge.line}", f"{page}{repository.forge.commit}", head)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None
