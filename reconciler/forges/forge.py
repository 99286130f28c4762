"""The forges that we know, a row each: the addresses of their pages and of their comments. Pure.

All three take a bearer token, answer `GET /user` with who it is of, list comments in pages that a
Link header leads through, and keep the text of one in `body`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlsplit


@dataclass(frozen=True, slots=True)
class CommentApi:
    """`all` and `one` are paths below the API, `update` is the method that changes one. `author`
    and `login` lead to who wrote it."""

    all: str
    one: str
    update: str
    author: str
    login: str


@dataclass(frozen=True, slots=True)
class Forge:
    """`line` and `commit` are below a repository's page, `api` is below its host. `robots`: how
    those are called who write with the token of a job or an app, which are of no user."""

    name: str
    hosts: tuple[str, ...]  # a word in the name of a host that is one
    line: str
    commit: str
    api: str
    comments: CommentApi
    tokens: tuple[str, ...]  # variables, the first that is set counts
    hosted: tuple[str, str] | None = None  # the host whose API is elsewhere, and where
    robots: str | None = None  # a pattern that no user's name matches

    def api_of(self, page: str) -> str:
        parts = urlsplit(page)
        if self.hosted is not None and parts.netloc == self.hosted[0]:
            return self.hosted[1]
        return f"{parts.scheme}://{parts.netloc}{self.api}"

    def writer(self, comment: Mapping[str, Any]) -> str | None:
        author = comment.get(self.comments.author)
        return author.get(self.comments.login) if isinstance(author, dict) else None


_ISSUE_COMMENTS = CommentApi(
    all="/repos/{repository}/issues/{number}/comments",
    one="/repos/{repository}/issues/comments/{id}",
    update="PATCH",
    author="user",
    login="login",
)
_FORGES = (
    Forge(
        "github",
        hosts=("github",),
        line="/blob/{commit}/{file}#L{line}",
        commit="/commit/{commit}",
        api="/api/v3",
        hosted=("github.com", "https://api.github.com"),
        comments=_ISSUE_COMMENTS,
        tokens=("GITHUB_TOKEN", "GH_TOKEN"),
        robots=r".+\[bot\]",
    ),
    Forge(
        "forgejo",
        hosts=("codeberg", "forgejo", "gitea"),
        line="/src/commit/{commit}/{file}#L{line}",
        commit="/commit/{commit}",
        api="/api/v1",
        comments=_ISSUE_COMMENTS,
        tokens=("FORGEJO_TOKEN", "GITEA_TOKEN", "GITHUB_TOKEN"),
        robots="forgejo-actions|gitea-actions",
    ),
    Forge(
        "gitlab",
        hosts=("gitlab",),
        line="/-/blob/{commit}/{file}#L{line}",
        commit="/-/commit/{commit}",
        api="/api/v4",
        comments=CommentApi(
            all="/projects/{project}/merge_requests/{number}/notes",
            one="/projects/{project}/merge_requests/{number}/notes/{id}",
            update="PUT",
            author="author",
            login="username",
        ),
        tokens=("GITLAB_TOKEN",),
    ),
)
FORGES: Mapping[str, Forge] = MappingProxyType({forge.name: forge for forge in _FORGES})


@dataclass(frozen=True, slots=True)
class ForgeRepository:
    """One on a forge. `page` is its address in a browser, without a slash at its end; `api` is
    stated where a job knows it."""

    forge: Forge
    page: str
    stated_api: str | None = None

    @property
    def api(self) -> str:
        return (self.stated_api or self.forge.api_of(self.page)).rstrip("/")

    def comments(self, number: int) -> str:
        return self._below_api(self.forge.comments.all, number=number)

    def comment(self, number: int, id: int) -> str:
        return self._below_api(self.forge.comments.one, number=number, id=id)

    def _below_api(self, template: str, **more: int) -> str:
        name = urlsplit(self.page).path.strip("/")
        project = quote(name, safe="")
        return f"{self.api}{template.format(repository=quote(name), project=project, **more)}"


def read_repository(text: str) -> ForgeRepository:
    """`[FORGE=]https://HOST/OWNER/NAME`. Raises ValueError."""
    name, equals, rest = text.partition("=")
    is_named = bool(equals) and name in FORGES
    page = rest if is_named else text
    parts = urlsplit(page)
    if parts.scheme not in ("http", "https") or not parts.hostname or not parts.path.strip("/"):
        raise ValueError("give the address of the repository's page, https://HOST/OWNER/NAME")
    if parts.query or parts.fragment or "@" in parts.netloc or not page.isprintable():
        raise ValueError("give the address without a login, and with nothing behind the name")
    forge = FORGES[name] if is_named else forge_of_host(parts.hostname)
    if forge is None:
        raise ValueError(f"say which forge that is: {' or '.join(f'{n}=...' for n in FORGES)}")
    return ForgeRepository(forge, page.rstrip("/").removesuffix(".git"))


def forge_of_host(host: str) -> Forge | None:
    """By the words in a host's name; None where it says nothing."""
    return next((f for f in FORGES.values() if any(word in host for word in f.hosts)), None)
