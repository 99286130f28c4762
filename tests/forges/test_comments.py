"""One comment of a pull request is kept current, whatever the forge does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.api.errors import ForgeError
from reconciler.forges.comments import Comments, marker
from reconciler.forges.forge import FORGES, read_repository
from reconciler.forges.job import job_of, links_to, repository_of_remote
from tests.support.forge_api import TOKEN, Answer, ForgeApi

OURS = marker("fleet")


def comments(forge: ForgeApi, waits: list[float] | None = None) -> Comments:
    sleep = (lambda _: None) if waits is None else waits.append
    return Comments(read_repository(forge.page), 7, TOKEN, sleep)


@pytest.mark.parametrize("me", ["fleet-bot", None], ids=["a user's token", "a job's token"])
@pytest.mark.parametrize("kind", FORGES)
def test_a_comment_is_written_once_and_then_kept_current(kind: str, me: str | None) -> None:
    with ForgeApi(kind, me) as forge:
        forge.add("ada", "looks good")

        done = [comments(forge).put("fleet", text) for text in ("one", "one\n", "two")]

        assert done == ["written", "current already", "updated"]
        assert forge.bodies == ["looks good", f"{OURS}\ntwo"]


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_comment_is_found_on_the_third_page(kind: str) -> None:
    with ForgeApi(kind) as forge:
        forge.most_a_page = 10
        for number in range(25):
            forge.add("ada", f"comment {number}")
        forge.add(forge.me, f"{OURS}\r\nold")

        assert comments(forge).put("fleet", "new") == "updated"
        assert len(forge.comments) == 26


@pytest.mark.parametrize(
    ("author", "body"),
    [
        ("mallory", f"{OURS}\nnot of us"),
        ("fleet-bot", f"> {OURS}\nquoted"),
        ("fleet-bot", f"{marker('other')}\nof another fleet"),
    ],
)
def test_what_others_wrote_is_left_alone(author: str, body: str) -> None:
    with ForgeApi("github") as forge:
        forge.add(author, body)

        assert comments(forge).put("fleet", "ours") == "written"
        assert forge.bodies == [body, f"{OURS}\nours"]


def test_a_jobs_token_takes_no_comment_of_a_person() -> None:
    with ForgeApi("github", me=None) as forge:
        forge.add("mallory", f"{OURS}\nnot of us")

        assert comments(forge).put("fleet", "ours") == "written"


AWAY = "https://elsewhere.test/repos/me/fleet/issues/7/comments?page=2"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([Answer(500)] * 3, "answers 500: no"),
        ([Answer(403, message="Resource not accessible by integration")], "of a job for a fork"),
        ([Answer(404)], "as far as this token may see"),
        ([Answer(401)], "not known there, or has expired"),
        ([Answer(301, {"Location": AWAY})], "leads to https://elsewhere.test/repos/me/fleet"),
        ([Answer(429, {"Retry-After": "3600"})], "too many requests; it wants us back in 3600 s"),
        ([Answer(403, {"Retry-After": "7"})] * 3, "too many requests; it wants us back in 7 s"),
        ([Answer(200, {"Link": f'<{AWAY}>; rel="next"'})], "answers no list of comments"),
    ],
    ids=["500", "403", "404", "401", "a redirect", "a long wait", "waits again and again", "odd"],
)
def test_a_forge_that_does_not_take_it_is_said_in_words_without_the_token(
    answers: list[Answer], said: str
) -> None:
    with ForgeApi("github") as forge:
        forge.instead["GET"] = list(answers)

        with pytest.raises(ForgeError, match=said) as error:
            comments(forge).put("fleet", "text")

        assert TOKEN not in str(error.value)
        assert forge.comments == []


def test_a_page_of_the_list_that_is_elsewhere_is_not_asked() -> None:
    with ForgeApi("github") as forge, ForgeApi("github") as elsewhere:
        forge.most_a_page = 1
        forge.host = elsewhere.host
        for _ in range(2):
            forge.add("ada", "hello")

        with pytest.raises(ForgeError, match="the token would go there"):
            comments(forge).put("fleet", "text")

        assert elsewhere.requests == []


def test_a_forge_that_says_for_how_long_is_waited_for() -> None:
    waits: list[float] = []
    with ForgeApi("github") as forge:
        forge.instead["POST"] = [Answer(403, {"Retry-After": "5"}), Answer(429)]

        assert comments(forge, waits).put("fleet", "text") == "written"

    assert waits == [5.0, 60.0]


def test_a_comment_that_may_have_been_written_is_not_written_again() -> None:
    with ForgeApi("github") as forge:
        forge.instead["POST"] = [Answer(502)]

        with pytest.raises(ForgeError, match="answers 502"):
            comments(forge).put("fleet", "text")

        assert forge.requests.count("POST /api/v3/repos/me/fleet/issues/7/comments") == 1


def test_a_token_goes_over_no_plain_connection_to_another_machine() -> None:
    repository = read_repository("github=http://forge.test/me/fleet")

    with pytest.raises(ForgeError, match="by https only"):
        Comments(repository, 7, TOKEN).put("fleet", "text")


ACTIONS = {
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "me/fleet",
    "GITHUB_REF": "refs/pull/7/merge",
}
GITLAB = {"CI_PROJECT_URL": "https://git.test/me/fleet", "CI_MERGE_REQUEST_IID": "7"}


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        (ACTIONS, "https://api.github.com/repos/me/fleet/issues/7/comments"),
        (
            ACTIONS | {"GITHUB_API_URL": "https://git.test/api/v3"},
            "https://git.test/api/v3/repos/me/fleet/issues/7/comments",
        ),
        (
            ACTIONS | {"FORGEJO_ACTIONS": "true", "GITHUB_SERVER_URL": "https://codeberg.org/"},
            "https://codeberg.org/api/v1/repos/me/fleet/issues/7/comments",
        ),
        (GITLAB, "https://git.test/api/v4/projects/me%2Ffleet/merge_requests/7/notes"),
        (
            GITLAB | {"CI_MERGE_REQUEST_PROJECT_URL": "https://git.test/them/fleet"},
            "https://git.test/api/v4/projects/them%2Ffleet/merge_requests/7/notes",
        ),
    ],
    ids=["github", "github enterprise", "forgejo", "gitlab", "gitlab, of a fork"],
)
def test_a_job_says_where_its_comment_goes(environ: dict[str, str], address: str) -> None:
    job = job_of(environ)

    assert job.repository is not None
    assert job.number is not None
    assert job.repository.comments(job.number) == address


def test_a_job_that_is_about_no_pull_request_has_no_number() -> None:
    assert job_of(ACTIONS | {"GITHUB_REF": "refs/heads/main"}).number is None
    assert job_of({}).repository is None


@pytest.mark.parametrize(
    ("remote", "line"),
    [
        ("git@github.com:me/fleet.git", "https://github.com/me/fleet/blob/{commit}/"),
        ("https://u:secret@gitlab.com/me/fleet", "https://gitlab.com/me/fleet/-/blob/{commit}/"),
        (
            "ssh://git@codeberg.org:22/me/fleet",
            "https://codeberg.org/me/fleet/src/commit/{commit}/",
        ),
        ("/srv/git/fleet.git", None),
        ("https://git.test/me/fleet", None),
        ("", None),
    ],
)
def test_a_remote_of_a_forge_that_is_known_has_pages_to_link_to(
    remote: str, line: str | None
) -> None:
    links = links_to(repository_of_remote(remote), None)

    assert links.line == (line and f"{line}{{file}}#L{{line}}")


@pytest.mark.parametrize(
    "text",
    ["git.test/me/fleet", "https://git.test", "https://git.test/me", "https://u:p@github.com/a/b"],
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"give the address|say which forge"):
        read_repository(text)


def test_the_token_is_in_no_description() -> None:
    with ForgeApi("github") as forge:
        assert TOKEN not in repr(replace(comments(forge), number=8))
