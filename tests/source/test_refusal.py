"""What is said of a remote that could not be read, from git's own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.source.address import Address, GitCredentials
from reconciler.source.refusal import unreachable
from reconciler.source.worktree import explain_refusal

REMOTE = Address("https://u:p@git.test/fleet", "https://git.test/fleet", "https")
NOBODY = GitCredentials()
FILES = GitCredentials(Path("/token"), Path("/key"), Path("/hosts"), Path("/ca.pem"))


@pytest.mark.parametrize(
    ("stderr", "known", "said"),
    [
        ("fatal: could not read Username: terminal prompts disabled", NOBODY,
         "the remote asks for a login; name a token with --git-token-file"),
        ("fatal: Authentication failed for 'https://git.test'", FILES,
         "the remote refused the token of /token (401)"),
        ("The requested URL returned error: 403", NOBODY,
         "the remote forbids it (403); name a token that may"),
        ("The requested URL returned error: 403", FILES, "give the token of /token the right"),
        ("fatal: repository 'https://git.test/' not found", NOBODY,
         "no such repository there (404); check the address, or, if it is private, name a token"),
        ("The requested URL returned error: 404", FILES, "that the token of /token may read it"),
        ("SSL certificate problem: self-signed", NOBODY, "its certificate is not trusted here"),
        ("SSL certificate problem: self-signed", FILES, "into /ca.pem"),
        ("git@git.test: Permission denied (publickey).", NOBODY,
         "the remote refused the keys of this user; name one with --ssh-key-file"),
        ("git@git.test: Permission denied (publickey).", FILES, "refused the key of /key"),
        ("No ED25519 host key is known for git.test and you have requested strict checking.\n"
         "Host key verification failed.", NOBODY, "`ssh-keyscan git.test > FILE`"),
        ("No ED25519 host key is known for [127.0.0.1]:38222 and you have requested strict"
         " checking.\n"
         "Host key verification failed.", NOBODY, "`ssh-keyscan -p 38222 127.0.0.1 > FILE`"),
        ("Host key verification failed.", NOBODY, "not the one in ~/.ssh/known_hosts"),
        ("Host key verification failed.", FILES, "not the one in /hosts"),
        ("Could not resolve host: git.test", NOBODY, "the name git.test is not known here"),
        ("fatal: detected dubious ownership in repository", NOBODY,
         "git config --global --add safe.directory https://u:p@git.test/fleet"),
        ("error: possible repository corruption on the remote side", NOBODY,
         "lacks objects of its own; that repository is damaged: `git fsck` there"),
        ("fatal: out of memory; returned error: 403", NOBODY, "the line that counts"),
        ("fatal: something else", NOBODY, "the line that counts"),
    ],
)  # fmt: skip
def test_why_a_remote_cannot_be_read_is_said_with_what_to_do(
    stderr: str, known: GitCredentials, said: str
) -> None:
    message = str(unreachable(REMOTE, known, stderr, "the line that counts"))

    assert message.startswith("https://git.test/fleet: ")
    assert said in message


def test_a_work_tree_of_another_user_is_refused_with_what_trusts_it() -> None:
    here = Path("/fleet")
    theirs = explain_refusal(here, "fatal: detected dubious ownership in repository", "first line")

    assert theirs.endswith("if you trust it: git config --global --add safe.directory /fleet")
    assert explain_refusal(here, "fatal: not a git repository", "its line") == "/fleet: its line"
