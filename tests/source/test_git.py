"""A git repository as a source: real repositories, real pushes, hostile ones too."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from reconciler.api.errors import SourceError, UsageError
from reconciler.source.address import GitCredentials, parse_address, redact_url
from reconciler.source.authorship import Authorship
from reconciler.source.checkout import YamlFile
from reconciler.source.command import Finished
from reconciler.source.commit import GitCheckout, YamlBlobs
from reconciler.source.field_history import FieldHistory
from reconciler.source.git import GitSource
from reconciler.source.objects import GitObjects
from reconciler.source.open import cache_dir, open_source
from tests.support.git_http import git_server
from tests.support.repos import Repo, run_git
from tests.support.wait import PATIENCE_S

MODEL = """\
apiVersion: inference.llmkube.dev/v1alpha1
kind: Model
metadata: {name: NAME}
spec: {source: model.gguf}
"""


@pytest.fixture(autouse=True)
def _no_configuration_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.create(tmp_path)
    made.publish({"a.yaml": model("a")})
    return made


def model(name: str) -> str:
    return MODEL.replace("NAME", name)


def follow(repo: Repo, ref: str | None = None, **options: str) -> GitSource:
    return GitSource(str(repo.remote), ref=ref, cache_dir=repo.work.parent / "cache", **options)


def paths(checkout: GitCheckout) -> list[str]:
    return [file.path for file in checkout.yaml_files() if isinstance(file, YamlFile)]


def test_a_push_is_seen_on_the_next_fetch_and_nothing_new_is_the_same_checkout(repo: Repo) -> None:
    source = follow(repo)

    first = source.fetch()
    again = source.fetch()
    sha = repo.publish({"b.yaml": model("b")})
    second = source.fetch()

    assert again is first
    assert paths(first) == ["a.yaml"]
    assert second.revision == second.commit == sha
    assert paths(second) == ["a.yaml", "b.yaml"]
    assert next(iter(first.yaml_files())).data == model("a").encode()


def test_a_commit_by_its_full_id_is_fetched_alone(repo: Repo) -> None:
    first = repo.git("rev-parse", "HEAD")
    later = repo.publish({"b.yaml": model("b")})
    source = follow(repo, first)

    checkout = source.fetch()

    assert (checkout.revision, paths(checkout)) == (first, ["a.yaml"])
    assert not source.knows(later), "nothing else came with it"


def test_a_repository_of_longer_ids_is_followed_by_a_branch_or_a_commit(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path, object_format="sha256")
    sha = repo.publish({"a.yaml": model("a")})
    branch, commit, brought = (
        GitSource(str(repo.remote), ref=ref, cache_dir=tmp_path / name)
        for name, ref in (("branch", None), ("commit", sha), ("brought", None))
    )

    brought.bring(sha)

    assert len(sha) == 64
    assert {each.revision for each in (branch.fetch(), commit.fetch(), brought.at(sha))} == {sha}


@pytest.mark.parametrize("ref", [None, "main"])
def test_a_poll_without_news_transfers_no_list_of_refs(repo: Repo, ref: str | None) -> None:
    """A forge keeps a ref for each pull request that there ever was."""
    pulls = [f"{repo.head()} refs/pull/{n}/head\n" for n in range(1_000)]
    (repo.remote / "packed-refs").write_text("".join(pulls))
    with git_server(repo.remote.parent) as server:
        source = GitSource(server.url("fleet.git"), ref=ref, cache_dir=repo.work.parent / "cache")
        first = source.fetch()
        listed = server.sent_bytes
        again = source.fetch()
        polled = server.sent_bytes - listed
        sha = repo.publish({"b.yaml": model("b")})
        second = source.fetch()

    assert again is first
    assert second.revision == sha
    assert listed > 50_000
    assert polled < 1_000


def test_a_branch_goes_before_a_tag_of_its_name_and_the_tag_comes_back(repo: Repo) -> None:
    old = repo.head()
    repo.git("tag", "next")
    repo.git("push", "-q", "origin", "refs/tags/next")
    source = follow(repo, ref="next")
    tagged = [source.fetch().revision for _ in range(2)]
    new = repo.publish({"b.yaml": model("b")})

    repo.git("push", "-q", "origin", "main:refs/heads/next")
    branched = [source.fetch().revision for _ in range(3)]
    repo.git("push", "-q", "origin", ":refs/heads/next")

    assert tagged == [old, old]
    assert branched == [new, new, new]
    assert source.fetch().revision == old


def test_a_branch_a_tag_and_a_commit_can_be_named(repo: Repo) -> None:
    old = repo.head()
    repo.git("tag", "-a", "v1", "-m", "v1")
    repo.git("push", "-q", "origin", "v1")
    repo.git("checkout", "-q", "-b", "feature/x")
    branch = repo.publish({"b.yaml": model("b")})

    named = {ref: follow(repo, ref).fetch().revision for ref in ("main", "v1", old, old[:9])}

    assert set(named.values()) == {old}
    assert follow(repo, "feature/x").fetch().revision == branch
    assert follow(repo, branch[:10]).fetch().revision == branch
    assert follow(repo, "feature/x~1").fetch().revision == old
    assert follow(repo, "refs/heads/feature/x").fetch().revision == branch


def test_a_commit_that_is_here_needs_no_remote(repo: Repo) -> None:
    sha = repo.head()
    follow(repo, sha).fetch()

    repo.remote.rename(repo.remote.with_name("gone"))

    assert follow(repo, sha).fetch().revision == sha


@pytest.mark.parametrize(
    "ref", ["--upload-pack=touch x", "a b", "a..b", "main@{1}", "x:y", "", "nowhere", "abcdef12"]
)
def test_a_ref_that_is_none_is_an_error(repo: Repo, ref: str) -> None:
    if not ref:
        assert follow(repo, ref).ref == "HEAD"
        return

    with pytest.raises(SourceError, match="branch"):
        follow(repo, ref).fetch()


@pytest.mark.parametrize(
    ("ref", "says"), [("main", "branch or tag main"), (None, "default branch")]
)
def test_a_branch_that_was_deleted_is_named_as_gone(repo: Repo, ref: str | None, says: str) -> None:
    source, head = follow(repo, ref), repo.head()
    source.fetch()
    run_git(repo.remote, "update-ref", "-d", "refs/heads/main")

    for follower in (source, follow(repo, ref)):  # who saw it before, and the next run
        with pytest.raises(SourceError, match=f"the {says} is gone there, it was at {head[:12]};"):
            follower.fetch()

    run_git(repo.remote, "update-ref", "refs/heads/main", head)
    assert source.fetch().revision == head


def test_a_clone_is_read_by_its_commits_and_its_tracking_branches(repo: Repo) -> None:
    repo.git("fetch", "-q", "origin", "main:refs/remotes/origin/main")
    sha = repo.head()
    repo.write("a.yaml", "uncommitted")
    local = repo.commit(push=False)
    cache = repo.work.parent / "cache"

    assert GitSource(str(repo.work), cache_dir=cache).fetch().revision == local
    assert GitSource(str(repo.work), ref="origin/main", cache_dir=cache).fetch().revision == sha


def test_a_shallow_clone_can_be_read(repo: Repo) -> None:
    sha = repo.publish({"b.yaml": model("b")})
    shallow = repo.work.parent / "shallow"
    run_git(repo.work.parent, "clone", "-q", "--depth=1", f"file://{repo.remote}", str(shallow))

    checkout = GitSource(str(shallow), cache_dir=repo.work.parent / "cache").fetch()

    assert checkout.revision == sha
    assert paths(checkout) == ["a.yaml", "b.yaml"]


def rewrite(repo: Repo, message: str = "rewritten") -> None:
    """Push another commit in the place of the last one."""
    repo.git("commit", "-q", "--amend", "-m", message)
    repo.push(force=True)


def test_the_last_good_commit_outlives_an_unreachable_remote_and_a_force_push(repo: Repo) -> None:
    source = follow(repo)
    good = source.fetch().revision
    source.keep(good, "/state/history.json")
    rewrite(repo)
    rewritten = source.fetch().revision
    run_git(source.mirror.folder, "gc", "-q", "--prune=now")

    repo.remote.rename(repo.remote.with_name("gone"))

    with pytest.raises(SourceError, match=r"fleet\.git: no such folder"):
        source.fetch()
    assert paths(follow(repo).at(good)) == ["a.yaml"]
    assert not source.is_ancestor(good, rewritten)
    assert source.is_ancestor(good, good)


def test_two_followers_of_one_repository_each_hold_what_they_applied(repo: Repo) -> None:
    source = follow(repo)
    first = source.fetch().revision
    source.keep(first, "/one/history.json")
    rewrite(repo)
    source.keep(source.fetch().revision, "/two/history.json")
    rewrite(repo, "once more")
    source.fetch()

    run_git(source.mirror.folder, "gc", "-q", "--prune=now")

    assert paths(source.at(first)) == ["a.yaml"]


def test_only_files_of_the_fleet_are_yielded(repo: Repo) -> None:
    repo.publish(
        {
            "b.yml": model("b"),
            "helm/values.yaml": "a: {{ .Values.x }}",
            ".github/c.yaml": model("c"),
            "x/.d/d.yaml": model("d"),
            "e.txt": model("e"),
            "off.yaml": "# fleet: ignore\n" + model("off"),
            "drafts/f.yaml": model("f"),
            ".fleetignore": "drafts/\n",
        }
    )
    checkout = follow(repo).fetch()

    assert paths(checkout) == ["a.yaml", "b.yml"]
    held = [f.path for f in checkout.yaml_files(["helm/values.yaml", "drafts/f.yaml", "none.yaml"])]
    assert held == ["a.yaml", "b.yml", "helm/values.yaml"]


def test_a_folder_of_the_repository_can_be_the_fleet_or_narrow_it(repo: Repo) -> None:
    repo.publish({"sites/lab/b.yaml": model("b"), "model.gguf": b"x", "sites/m.gguf": b"y"})

    narrowed = follow(repo, subdir="sites").fetch()
    rooted = follow(repo, root="sites").fetch()

    assert paths(narrowed) == ["sites/lab/b.yaml"]
    assert narrowed.model_file("model.gguf").size_bytes == 1
    assert paths(rooted) == ["lab/b.yaml"]
    assert rooted.commit_of("lab/b.yaml") == repo.head()
    with pytest.raises(SourceError, match=r"model\.gguf"):
        rooted.model_file("model.gguf")
    with pytest.raises(SourceError, match="no such folder"):
        follow(repo, subdir="nowhere").fetch()
    with pytest.raises(SourceError, match="no such folder"):
        follow(repo, root="nowhere").fetch()


def test_odd_file_names_are_only_names(repo: Repo) -> None:
    odd = ["-rf.yaml", 'q"uote.yaml', "new\nline.yaml", "ünï.yaml", "a b*.yaml", "tab\t.yaml"]
    sha = repo.publish({name: model("x") + name for name in odd})
    checkout = follow(repo).fetch()

    found = {file.path: file.data for file in checkout.yaml_files()}

    assert set(found) == {*odd, "a.yaml"}
    assert all(found[name] == (model("x") + name).encode() for name in odd)
    assert {checkout.commit_of(name) for name in odd} == {sha}


def test_a_large_file_is_cut_one_byte_past_the_limit(repo: Repo) -> None:
    repo.publish({"big.yaml": model("big") + "#" * 2**21})

    files = {f.path: f.data for f in follow(repo).fetch().yaml_files()}

    assert len(files["big.yaml"]) == 2**20 + 1


def test_a_model_file_has_size_and_digest_and_streams(repo: Repo) -> None:
    body = os.urandom(3_000_000)
    repo.publish({"models/m.gguf": body})
    checkout = follow(repo).fetch()

    file = checkout.model_file("models/./m.gguf")
    with checkout.open("models/m.gguf") as stream:
        head, rest = stream.read(10), stream.read()
    with checkout.open("models/m.gguf") as stream:
        stream.read(10)  # closed early: the process ends with it

    assert (file.path, file.size_bytes) == ("models/m.gguf", len(body))
    assert file.sha256 == hashlib.sha256(body).hexdigest()
    assert head + rest == body


def test_links_submodules_and_lfs_pointers_are_never_followed(repo: Repo) -> None:
    (repo.work / "link.yaml").symlink_to("/etc/passwd")
    (repo.work / "link.gguf").symlink_to("/etc/passwd")
    (repo.work / "folder").symlink_to("/etc")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"
    repo.write("lfs.gguf", pointer)
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{repo.head()},sub")
    repo.git("add", "link.yaml", "link.gguf", "folder", "lfs.gguf")
    repo.git("commit", "-q", "-m", "links")
    repo.push()
    checkout = follow(repo).fetch()

    assert paths(checkout) == ["a.yaml"]
    held = {f.path: f for f in checkout.yaml_files(["link.yaml"])}
    assert isinstance(held["link.yaml"], YamlFile)
    assert held["link.yaml"].data == b""
    for path, reason in {
        "link.gguf": "symbolic link",
        "folder/passwd": "folder is a symbolic link",
        "sub": "submodule",
        "lfs.gguf": "LFS pointer",
        "none.gguf": "no such file",
        "../x.gguf": "out of the repository",
        "/etc/passwd": "absolute",
    }.items():
        with pytest.raises(SourceError, match=reason):
            checkout.model_file(path)
        with pytest.raises(SourceError, match=reason):
            checkout.open(path)


def test_each_file_has_the_commit_that_touched_it_last(repo: Repo) -> None:
    names = [f"f{n}.yaml" for n in range(8)]
    commits = {name: repo.publish({name: model(name)}) for name in names}
    repo.git("rm", "-q", "a.yaml")
    removed = repo.commit()
    checkout = follow(repo).fetch()

    assert {name: checkout.commit_of(name) for name in names} == commits
    assert checkout.commit_of("a.yaml") == removed
    assert checkout.commit_of("never.yaml") is None


def test_nothing_that_a_repository_configures_is_run(repo: Repo, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    evil.chmod(0o755)
    repo.write(".gitattributes", "*.yaml filter=evil diff=evil\n")
    repo.commit()
    for key in (
        "core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.gitProxy",
        "uploadpack.packObjectsHook", "filter.evil.smudge", "filter.evil.clean",
        "diff.evil.textconv", "diff.external", "gpg.program", "credential.helper",
        "core.alternateRefsCommand",
    ):  # fmt: skip
        repo.git("config", key, str(evil))
    repo.git("config", "log.showSignature", "true")
    for hook in ("post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"):
        (repo.work / ".git/hooks" / hook).write_text(evil.read_text())
        (repo.work / ".git/hooks" / hook).chmod(0o755)
    repo.write("a.yaml", model("edited"))

    committed = open_source(str(repo.work), cache_dir=tmp_path / "cache").fetch()
    edited = open_source(str(repo.work), cache_dir=tmp_path / "c", working_tree=True).fetch()

    for checkout in (committed, edited):
        list(checkout.yaml_files())
        [checkout.commit_of(name) for name in ("a.yaml", "b", "c", "d", "e")]
    assert not marker.exists()


@pytest.mark.parametrize(
    "location",
    [
        "ext::sh -c touch% /tmp/x", "fd::7", "git://host/x", "http://example.com/x.git",
        "ftp://host/x", "ssh://-oProxyCommand=x/y", "-oProxyCommand=x:y", "--upload-pack=x",
        "https://user:secret@host/x", "file://host/x", "https:///x", "javascript:alert://1",
        "https://host/x\n", "ext::sh://x", "file://relative",
        "https://ghp_secret@host/x", f"https://{'secret' * 6}@host/x",
        "https://host/x.git?private_token=secret", "https://ATBBsecret7x@host/x",
        "https://glptt-secretsecret@host/x", "https://glsoat-secret@host/x",
        "https://secret4secret4secret@host/x", "https://oauth2%3Asecret@host/x",
        "https://host/x;private_token=secret", "https://host/x#secret",
    ],
)  # fmt: skip
def test_an_address_that_is_not_allowed_is_refused(location: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_address(location)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "protocol"),
    [
        ("https://example.com/x.git", "https"), ("https://org@host/x", "https"),
        ("https://oauth2@host/x", "https"), ("https://jane.doe42@host/x", "https"),
        ("ssh://git@example.com:22/x", "ssh"),
        ("git@example.com:org/x.git", "ssh"), ("host:x", "ssh"), ("./x", "file"),
        ("./a folder", "file"),
        ("file:///x", "file"), ("http://127.0.0.1:80/x", "http"), ("http://[::1]/x", "http"),
    ],
)  # fmt: skip
def test_an_address_that_is_allowed_names_its_protocol(location: str, protocol: str) -> None:
    assert parse_address(location).protocol == protocol


def test_what_is_printed_holds_no_credentials() -> None:
    text = "fatal: unable to access 'https://me:hunter2@host/x?token=hunter2': https://hunter2@h/"

    assert "hunter2" not in redact_url(text)
    assert redact_url("git@host:x and /a/b@c") == "git@host:x and /a/b@c"


def test_a_remote_that_never_answers_is_cut_off_by_the_deadline(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/fleet.git"
        source = GitSource(url, cache_dir=tmp_path, deadline_s=0.3)

        for _ in range(2):  # it leaves nothing that blocks the next
            with pytest.raises(SourceError, match=r"no answer within 0\.3 s"):
                source.fetch()


def test_a_token_goes_to_its_host_in_a_header_and_nowhere_else(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=answer_unauthorized, args=(server, seen))
        thread.start()
        source = GitSource(
            f"http://127.0.0.1:{port}/x.git",
            cache_dir=tmp_path / "cache",
            credentials=GitCredentials(token_file=token),
        )
        with pytest.raises(SourceError) as caught:
            source.fetch()
        thread.join(PATIENCE_S)

    assert b"Authorization: Basic eC1hY2Nlc3MtdG9rZW46czNjcmV0" in seen[0]
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def answer_unauthorized(server: socket.socket, seen: list[bytes]) -> None:
    connection, _ = server.accept()
    with connection:
        seen.append(connection.recv(65536))
        connection.sendall(
            b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=x\r\n"
            b"Content-Length: 0\r\nConnection: close\r\n\r\n"
        )


def test_a_missing_credential_file_is_named(tmp_path: Path) -> None:
    for credentials, option in (
        (GitCredentials(token_file=tmp_path / "no"), "--git-token-file"),
        (GitCredentials(ca_file=tmp_path / "no"), "--ca-file"),
    ):
        source = GitSource("https://127.0.0.1:1/x", cache_dir=tmp_path, credentials=credentials)
        with pytest.raises(SourceError, match=option):
            source.fetch()
    ssh = GitCredentials(ssh_key_file=tmp_path / "no")
    with pytest.raises(SourceError, match="--ssh-key-file"):
        GitSource("git@127.0.0.1:x", cache_dir=tmp_path, credentials=ssh).fetch()


def test_ssh_gets_exactly_the_key_and_the_known_hosts(tmp_path: Path) -> None:
    key, hosts = tmp_path / "my key'", tmp_path / "known hosts"
    key.touch()
    hosts.touch()
    credentials = GitCredentials(ssh_key_file=key, known_hosts_file=hosts)

    command = credentials.environment(parse_address("git@host:x"))["GIT_SSH_COMMAND"]

    words = run_git(tmp_path, "-c", f"alias.words=!printf '%s|' {command} #", "words").split("|")
    assert words[words.index("-i") + 1] == str(key)
    assert f'UserKnownHostsFile="{hosts}"' in words
    assert {"BatchMode=yes", "IdentitiesOnly=yes", "StrictHostKeyChecking=yes"} <= set(words)


def test_locks_of_a_killed_git_do_not_block_the_next_fetch(repo: Repo) -> None:
    source = follow(repo)
    source.fetch()
    head = next((source.mirror.folder / "refs/fleet/head").iterdir())
    for lock in (f"{head}.lock", source.mirror.folder / "packed-refs.lock"):
        Path(lock).touch()
    sha = repo.publish({"b.yaml": model("b")})

    assert source.fetch().revision == sha


def test_processes_that_fetch_into_one_mirror_take_turns(repo: Repo) -> None:
    sha = repo.publish({f"f{n}.yaml": model(f"f{n}") for n in range(50)})
    spawn = multiprocessing.get_context("spawn")

    with spawn.Pool(3) as pool:
        found = pool.starmap(fetch_once, [(str(repo.remote), repo.work.parent / "cache")] * 3)

    assert found == [(sha, 51)] * 3


def fetch_once(location: str, cache: Path) -> tuple[str, int]:
    checkout = GitSource(location, cache_dir=cache).fetch()
    return checkout.revision, len(list(checkout.yaml_files()))


def test_a_repository_without_commits_says_so(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)

    with pytest.raises(SourceError, match=r"no commits yet.*; commit one, or name"):
        follow(repo).fetch()


def test_git_variables_of_a_hook_do_not_lead_astray(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, "/nowhere")

    assert paths(follow(repo).fetch()) == ["a.yaml"]


def test_a_wrong_location_is_one_calm_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match="empty"):
        open_source("", cache_dir=tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        open_source(str(tmp_path / "file"), cache_dir=tmp_path)
    with pytest.raises(SourceError, match="no such folder"):
        open_source(str(tmp_path / "none"), cache_dir=tmp_path)


def test_a_bare_repository_and_a_folder_of_a_clone_are_read_by_commits(repo: Repo) -> None:
    repo.publish({"lab/b.yaml": model("b"), ".gitignore": "scratch/\n"})
    repo.write("lab/c.yaml", model("c"))
    repo.write("scratch/d.yaml", model("d"))
    cache = repo.work.parent / "cache"

    bare = open_source(str(repo.remote), cache_dir=cache).fetch()
    folder = open_source(str(repo.work / "lab"), cache_dir=cache).fetch()

    assert [f.path for f in bare.yaml_files()] == ["a.yaml", "lab/b.yaml"]
    assert [f.path for f in folder.yaml_files()] == ["b.yaml"]


def test_a_mirror_that_has_become_many_files_is_packed(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = follow(repo)
    for key, value in {"COUNT": "1", "KEY_0": "fetch.unpackLimit", "VALUE_0": "100000"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{key}", value)  # as a thousand small pushes arrive
    repo.publish({f"many/{n}.txt": str(n) for n in range(1_500)})

    checkout = source.fetch()

    objects = source.mirror.folder / "objects"
    assert len(list(objects.glob("[0-9a-f][0-9a-f]/*"))) < 100
    assert len(list(objects.glob("pack/*.pack"))) == 1
    assert paths(checkout) == ["a.yaml"]


class Counted(GitObjects):
    questions = 0

    def git_beginning(self, *argv: str, most_bytes: int, stdin: bytes | None = None) -> Finished:
        self.questions += 1
        return super().git_beginning(*argv, most_bytes=most_bytes, stdin=stdin)


def test_many_files_that_no_commit_ever_held_cost_no_process_each(repo: Repo) -> None:
    sha = repo.publish({"there.yaml": "a: 1\n", "folder/x.yaml": "a: 1\n"})
    objects = Counted(repo.work / ".git")
    authors = Authorship(objects, sha)

    told = [authors.commit_of(f"never-{n}.yaml") for n in range(50)]

    assert set(told) == {None}
    assert authors.commit_of("there.yaml") == authors.commit_of("folder/") == sha
    assert objects.questions < 10


def test_a_repository_that_is_gone_and_its_folders_are_what_they_were(
    repo: Repo, tmp_path: Path
) -> None:
    repo.publish({"lab/b.yaml": model("b")})
    cache = tmp_path / "cache"
    open_source(str(repo.work), cache_dir=cache).fetch()
    repo.work.rename(tmp_path / "gone")

    found = [
        open_source(f"{repo.work}/{name}", cache_dir=cache, applied_from=str(repo.work))
        for name in ("", "lab")
    ]

    assert [
        (source.location, source.root) for source in found if isinstance(source, GitSource)
    ] == [
        (str(repo.work), ""),
        (str(repo.work), "lab"),
    ]


def test_what_can_be_fetched_again_is_where_this_system_keeps_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    usual = "Library/Caches" if sys.platform == "darwin" else ".cache"

    for stated, folder in (("/cache", Path("/cache")), ("relative", tmp_path / usual)):
        monkeypatch.setenv("XDG_CACHE_HOME", stated)
        assert cache_dir() == folder / "fleet-reconciler"


def test_who_touched_a_file_is_the_same_asked_alone_and_read_for_all(repo: Repo) -> None:
    for number in range(7):
        repo.write("ab"[number % 2] + ".yaml", f"n: {number}\n")
        repo.commit(push=False)
    objects, sha = GitObjects(repo.work / ".git"), repo.head()
    together = Authorship(objects, sha)
    for name in "cdef":
        together.commit_of(f"{name}.yaml")

    for path in ("a.yaml", "b.yaml"):
        touches = [*together.touches(path)]

        assert touches == [*Authorship(objects, sha).touches(path)]
        for number, touch in enumerate(touches):
            assert [*together.touches(path, f"{touch.commit}^1")] == touches[number + 1 :]


def test_many_files_that_came_in_one_push_cost_no_process_each(repo: Repo) -> None:
    before = repo.head()
    sha = repo.publish(
        {f"apps/{n}.yaml": f"kind: ConfigMap\nn: {n}\n" for n in range(50)}
        | {"z.yaml": model("phi")}
    )
    objects = Counted(repo.work / ".git")
    history = FieldHistory(Authorship(objects, sha), YamlBlobs(objects).present)

    changed = history.changed_since(before)

    assert changed
    assert [ref.name for ref in changed[1]] == ["phi"]
    assert objects.questions < 10


def test_the_mirror_of_a_repository_is_its_users_alone(repo: Repo, tmp_path: Path) -> None:
    cache = tmp_path / "private"

    GitSource(str(repo.remote), cache_dir=cache).fetch()
    assert (cache / "git").stat().st_mode & 0o777 == 0o700

    (cache / "git").chmod(0o755)  # as it was made once
    GitSource(str(repo.remote), cache_dir=cache).fetch()
    assert (cache / "git").stat().st_mode & 0o777 == 0o700
