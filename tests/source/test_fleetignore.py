"""What git ignores, `.fleetignore` leaves out: git itself is asked, and none may differ."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from reconciler.api.errors import SourceError
from reconciler.source.fleetignore import ignore_matcher

# Files and paths. Each rule of gitignore(5) and of wildmatch, with what is next to it.
ROWS: tuple[tuple[str, str], ...] = (
    # Names
    ("foo", "foo bar foo/a a/foo foofoo"), ("/foo", "foo a/foo foo/a"),
    ("foo/", "foo foo/a a/foo/b"), ("a/foo", "a/foo b/a/foo a/foo/b"), ("fooo", "foo"), ("", "a"),
    ("/", "a a/b"), ("//", "a a/b"),
    # One byte
    ("???", "foo ab fooo a/b"), ("??", "foo é"), ("a?b", "a/b axb"), ("\\?", "? a"),
    ("a\\", "a a\\"), ("\\a", "a \\a"), ("\\\\", "\\ a"), ("\\*", "* a"),
    ("foo\\*", "foo* foobar"), ("f\\oo", "foo"),
    # Stars
    ("*", "foo a/b"), ("f*", "foo f"), ("*f", "foo"), ("*foo*", "foo xfoox f"),
    ("*ob*a*r*", "foobar"), ("*ab", "aaaaaaabababab"), ("foo/*", "foo/a foo/a/b foo"),
    ("foo/*/", "foo/a foo/a/b"), ("*/foo", "foo a/foo a/b/foo"),
    ("*/*/*", "foo/bar foo/bb/aa/rr foo/bba/arr"), ("*/a", "/a a"),
    ("-*-*-*-*-*-*-12-*-*-*-m-*-*-*", "-adobe-courier-bold-o-normal--12-120-75-75-m-70-iso8859-1"),
    ("-*-*-*-*-*-*-12-*-*-*-m-*-*-*", "-adobe-courier-bold-o-normal--12-120-75-75-X-70-iso8859-1"),
    ("XXX/*/*/*/*/*/*/12/*/*/*/m/*/*/*", "XXX/adobe/courier/bold/o/n/x/12/120/75/75/m/70/iso/1"),
    ("*X*i", "ab/cXd/efXg/hi"), ("*/*X*/*/*i", "ab/cXd/efXg/hi"), ("a*b/c", "ab/c axb/c a/b/c"),
    # Two and more
    ("**", "a a/b"), ("**/", "a a/b"), ("**/foo", "foo a/foo a/b/foo foofoo"),
    ("/**/foo", "foo a/foo"), ("foo/**", "foo foo/a foo/a/b"),
    ("foo/**/bar", "foo/bar foo/a/bar foo/a/b/bar foobar foo/a/xbar"),
    ("foo/**/**/bar", "foo/bar foo/b/a/z/bar"), ("foo**bar", "foo/baz/bar foobazbar foobar"),
    ("foo**/bar", "foo/baz/bar foo/x/y/bar foox/bar"), ("**foo/bar", "foo/bar a/foo/bar afoo/bar"),
    ("a/**b/c", "a/xb/c a/x/b/c"), ("a/b**/c", "a/b/c a/bx/c a/b/x/c"),
    ("**/bar*", "a/bar/b bara"), ("**/bar/*", "a/bar/b/c bar/x bar"),
    ("**/*a*b/**/*a*c", "ab/ac ab/x/ac ab/xc"), ("***", "a a/b"), ("**/**/**", "a a/b/c"),
    ("foo/***", "foo/a foo/a/b"), ("**\\/foo", "foo a/foo"), ("**/t[o]", "foo/bar/baz/to"),
    ("**/*/*", "a a/b a/b/c"), ("a/**/**", "a a/b"), ("***/b", "a/b b"),
    # Brackets
    ("[ab]", "a b c"), ("[!ab]", "a c"), ("[^ab]", "a c"), ("t[a-g]n", "ten tin"),
    ("t[^a-g]n", "ton"), ("a[]]b", "a]b"), ("a[]-]b", "a-b a]b aab"), ("a[]a-]b", "aab"),
    ("]", "]"), ("[]", "[] ]"), ("[!]", "a"), ("[a-]", "- a b"), ("[--A]", "- 5 A B"),
    ("[-b]", "- b"), ("[b-a]", "a b"), ("[a-c-e]", "- d e b"), ("[\\]]", "] \\"), ("[\\\\]", "\\"),
    ("[\\-^]", "- ^ ]"), ("[!\\\\]", "\\ a"), ("[\\\\-^]", "] ["), ("[a", "a [a"), ("[", "["),
    ("[!", "a"), ("[[]", "["), ("[^", "a"), ("[*", "*"), ("[a\\", "a"), ("foo[/]bar", "foo/bar"),
    ("foo[^a-z]bar", "foo/bar foo-bar fooxbar"), ("f[^eiu][^eiu][^eiu]r", "foo/r"), ("[,]", ","),
    ("[\\,]", ", \\"), ("[,-.]", "- +"), ("[é]", "é"), ("é*", "éa e"), ("?é", "aé"),
    # Classes
    ("[[:alpha:]][[:digit:]][[:upper:]]", "a1B aaB"), ("[[:digit:][:upper:][:space:]]", "A 1 a ."),
    ("[[:digit:]a]", "1 a b"), ("[[:xdigit:]]", "5 f D g"), ("[[:nothing:]]", "n :"),
    ("[[:upper:]", "A"), ("[[::]a]", "a :"), ("[[:]", "[ :"), ("[[:a]", ": a ["),
    ("[![:upper:]]", "a A"), ("[[:alpha:]-z]", "- z 5"), ("[a-c[:digit:]x-z]", "5 b y q"),
    ("[[:punct:]]", "! a ~"), ("[[-\\]]", "[ \\ ] ^ a"), ("[[:graph:][:cntrl:]]", "a \x7f é"),
    ("[[:blank:]]", "\t"), ("[[:space:]]", "\x0b \x0c \t"),
    # Order, and folders above
    ("!prod/a.yaml\nprod/", "prod/a.yaml"),
    ("drafts/\n!drafts/keep.yaml", "drafts/keep.yaml drafts/a"), ("dev/\n!dev/sub/", "dev/sub/a"),
    ("/*\n!prod/", "x/prod/h.yaml prod/a prod/b/c x"), ("foo/**\n!foo/bar/**", "foo/bar/a foo/a"),
    ("foo/*\n!foo/bar/", "foo/bar/a foo/a"), ("*\n!*/\n!a", "b/a b/c a"), ("!a\na\n!a", "a"),
    ("a\n!a\na", "a"), ("*.yaml\n!a.yaml\n/b/", "a.yaml c.yaml b/a.yaml c/a.yaml"), ("!", "a"),
    # Lines
    ("\ufefffoo", "foo"), ("foo\r\nbar\r", "foo bar"), ("foo  ", "foo"), ("foo\\ ", "foo"),
    ("foo\t", "foo \tfoo"), ("#foo\n\\#bar", "foo #foo #bar"), ("\\!foo", "!foo foo"), ("  ", "a"),
    ("dev/\x0cprod/", "dev/a prod/a"), ("a\u2028b", "a b a\u2028b"), ("a\x85b", "a b"),
    ("foo\0bar", "foo bar"), (" #a", "#a"), ("\x0c", "\x0c"), ("\r\n", "a"), ("t\\  ", "t"),
)  # fmt: skip
PIECES = (
    "*", "**", "***", "/", "**/", "/**", "*/", "?", "[", "]", "[!", "[^", "-", "\\", "a", "b",
    "foo", "é", "!", "#", " ", "\t", "\f", "\u2028", "\r", "\0", "A", "1", "\\*", "\\/", "a*b",
    "foo/bar", "[a-c]", "[^a-z]", "[]-a]", "[\\]]", "[[-\\]]", "[z-a]", "[/]",
    "[[:upper:]]", "[[:digit:]a]",
)  # fmt: skip
NAMES = (
    "a", "b", "foo", "bar", "ab", "aab", "é", "A", "1", "]", "-", "\\", "a b", "fooXbar", "[", "!",
    "#x", "b1", "\f", "\u2028", "*",
)  # fmt: skip


def differences(folder: Path, asked: Iterable[tuple[bytes, list[str]]]) -> list[tuple[bytes, str]]:
    """Where git decides otherwise. Each set of patterns is the `.gitignore` of a folder of its
    own, so that one git answers all of them."""
    subprocess.run(["git", "init", "-q", folder], check=True)
    sets = [(f"{number}/", data, paths) for number, (data, paths) in enumerate(asked)]
    for name, data, _ in sets:
        (folder / name).mkdir()
        (folder / name / ".gitignore").write_bytes(data)
    command = ["git", "-c", "core.ignorecase=false", "check-ignore", "--no-index", "-z", "--stdin"]
    question = "".join(f"{name}{path}\0" for name, _, paths in sets for path in paths)
    answer = subprocess.run(
        command, cwd=folder, input=question.encode(), stdout=subprocess.PIPE, check=False
    )
    assert answer.returncode == 0
    excluded = set(answer.stdout.decode().split("\0"))
    ours = [(name, data, paths, ignore_matcher(data)) for name, data, paths in sets]
    return [
        (data, path)
        for name, data, paths, is_excluded in ours
        for path in paths
        if is_excluded(path) != (f"{name}{path}" in excluded)
    ]


def test_each_rule_of_gitignore_is_ours(tmp_path: Path) -> None:
    rows = [
        (patterns.encode(), [path for path in paths.split(" ") if path and path[0] != "/"])
        for patterns, paths in ROWS
    ]

    assert differences(tmp_path, rows) == []


@pytest.mark.parametrize(
    ("name", "has_it"), [("print", True), ("blank", True), ("space", True), ("graph", False)]
)
def test_a_space_is_in_the_classes_in_which_git_has_it(name: str, has_it: bool) -> None:
    assert ignore_matcher(f"a[[:{name}:]]b\n".encode())("a b") is has_it


def test_random_patterns_exclude_what_git_excludes(tmp_path: Path) -> None:
    seed = random.getrandbits(32)
    chance = random.Random(seed)

    def pattern() -> str:
        text = "".join(chance.choices(PIECES, k=chance.choice((1, 1, 2, 2, 3, 3, 4, 5, 7))))
        return chance.choice(("", "", "", "!")) + text + chance.choice(("", "", "", "", "/"))

    def asked() -> tuple[bytes, list[str]]:
        patterns = "\n".join(pattern() for _ in range(chance.randint(1, 4)))
        paths = ("/".join(chance.choices(NAMES, k=chance.randint(1, 4))) for _ in range(20))
        return patterns.encode(), list(paths)

    assert differences(tmp_path, [asked() for _ in range(3_000)]) == [], f"seed {seed}"


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("*a", "a"), ("*a*/", "a/"), ("**/*a*/", "ab/"), ("[a-z]*", "a"), ("?*", "a/")],
)
def test_stars_that_are_repeated_take_time_with_pattern_and_path(pattern: str, name: str) -> None:
    """And no faster than with the product of both: one step of an automaton for each byte."""
    patterns = [(pattern * count + "b\n").encode() for count in (2_000, 8)]
    paths = ["/".join([name * 20] * 5) * (count // 100) + "c.yaml" for count in (3_000, 300)]
    began = time.process_time()

    assert not any(ignore_matcher(data)(path) for data in patterns for path in paths)

    assert time.process_time() - began < 1.0


def test_an_ignore_file_is_no_longer_than_what_is_quickly_asked() -> None:
    assert not ignore_matcher(b"/*" * 2**15)("a/b.yaml")

    with pytest.raises(SourceError, match="612,020 bytes; at most 65,536: name folders"):
        ignore_matcher(b"/*" * 306_010)


def test_many_patterns_and_long_comments_are_no_mistake() -> None:
    assert ignore_matcher(b"# ***** models *****\n" * 100 + b"a*b.yaml\n" * 2_000)("ab.yaml")
