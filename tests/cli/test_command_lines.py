"""Command lines that people are shown: the programs take them."""

from __future__ import annotations

import argparse
import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import agent.cli.commands
import reconciler.cli
import reconciler.cli.commands
from reconciler.api.errors import UsageError
from tests.support.command_lines import all_commands, parser_for, read
from tests.support.typed_pages import typed_lines

PAGE = Path(__file__).parents[2] / "docs/commands.md"
SOURCES = [
    file for room in ("reconciler", "agent") for file in (PAGE.parents[1] / room).rglob("*.py")
]
OURS = {"llmkube": "reconcile", "llmkube-metal-agent": "fleet-agent run"}  # docs/metal-agent.md


def test_the_page_of_commands_has_every_command_of_both_programs() -> None:
    lines = re.findall(r"`((?:reconcile|fleet-agent) [^`]+)`", PAGE.read_text())

    assert len(lines) > 20
    assert {read(line)[0] for line in lines} == all_commands()


@pytest.mark.parametrize("program", ["reconcile", "fleet-agent", *OURS])
def test_every_line_that_a_page_tells_to_type_is_taken_word_for_word(program: str) -> None:
    lines = [line for _, line in typed_lines({program}) if not line.endswith(" --version")]

    assert len(lines) > 2
    for line in lines:
        read(line.replace(program, OURS.get(program, program), 1))


@pytest.mark.parametrize("command", sorted(all_commands() - {"fleet-agent pod"}))
def test_the_help_of_a_command_shows_lines_that_it_takes(command: str) -> None:
    text = parser_for(command).format_help().partition("\nexamples:\n")[2]
    lines = re.findall(r"^  (.+?)  +\S", text, re.MULTILINE)

    assert 1 <= len(lines) <= 6  # `fleet-agent store` has six uses
    assert max(map(len, text.splitlines())) <= 100
    assert {read(line)[0] for line in lines} == {command}


@pytest.mark.parametrize(
    ("verb", "option"),
    [("plan", "--dry-run"), ("apply", "--once"), ("watch", "--watch"), ("follow", "")],
)
@pytest.mark.parametrize("words", ["", "--local=mac -o json", "--cluster prod --timeout 5m"])
def test_a_verb_and_its_option_mean_the_same(verb: str, option: str, words: str) -> None:
    meant = read(f"reconcile run {option} {words}")[1]

    assert read(f"reconcile {verb} {words}")[1] == meant
    assert read(f"reconcile {option} {words}")[1] == meant


def test_every_command_that_a_message_names_is_one_that_the_programs_take() -> None:
    lines = {line for file in SOURCES for line in _named_in(file)}

    assert len(lines) > 20
    for line in sorted(lines):
        program, command, *rest = line.split()
        if not rest and not command.startswith("-"):  # the name of a command, and no line
            assert f"{program} {command}" in all_commands(), line
        elif "--help" not in rest:
            read(line)


def test_an_error_of_the_system_is_said_in_words_and_without_its_number() -> None:
    """`[Errno 2] No such file or directory: '/nope'` names the file a second time, in quotes."""
    found = {f"{file.name}:{line}" for file in SOURCES for line in _said_as_they_are(file)}

    assert found == set()


def _said_as_they_are(file: Path) -> Iterator[int]:
    """Where the text of an OSError is put into a message, and not what `error_text` makes of it."""
    for handler in ast.walk(ast.parse(file.read_text())):
        if not isinstance(handler, ast.ExceptHandler) or not handler.name:
            continue
        if "OSError" not in ast.unparse(handler.type or ast.Constant("")):
            continue
        for node in ast.walk(handler):
            is_hole = isinstance(node, ast.FormattedValue) and ast.unparse(node.value) in (
                handler.name,
                f"{handler.name} or type({handler.name}).__name__",
            )
            is_text = isinstance(node, ast.Call) and ast.unparse(node) == f"str({handler.name})"
            if isinstance(node, ast.expr) and (is_hole or is_text):
                yield node.lineno


def _named_in(file: Path) -> Iterator[str]:
    """What stands in backticks in the texts of a module, with a word for each value."""
    for node in ast.walk(ast.parse(file.read_text())):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = ""
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                text += part.value
            elif isinstance(part, ast.FormattedValue):  # behind a word stand more options, or none
                text += "" if text[-1:].isalnum() else "name"
        yield from (
            " ".join(found.replace("{name}", "name").split())
            for found in re.findall(r"`((?:reconcile|fleet-agent)\s[^`]+)`", text)
            if "--help" not in found
        )


def test_the_words_of_the_other_program_are_known_and_every_answer_is_a_command() -> None:
    tables = {
        "reconcile": (reconciler.cli.commands.COMMANDS, reconciler.cli.commands.foreign_names()),
        "fleet-agent": (agent.cli.commands.COMMANDS, agent.cli.commands.foreign_names()),
    }
    for program, (ours, words) in tables.items():
        others = next(rows for name, (rows, _) in tables.items() if name != program)
        assert others.keys() <= words.keys() | ours.keys(), program
        for answer in (each for texts in words.values() for each in texts.split(" or ")):
            named, *rest = answer.split()
            if named in tables and rest and not rest[0].startswith("-"):
                assert f"{named} {rest[0]}" in all_commands(), answer
            elif named not in (*tables, "git", "pip"):
                assert named in ours, answer


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("ask chat hi --json", "(did you mean -o json?)"),
        ("status -w", "(did you mean --follow?)"),
        ("status -n prod", "(did you mean NAMESPACE/NAME?)"),
        ("logs chat -p", "(did you mean --previous?)"),
        ("init --models tiny", "(did you mean --model?)"),
        ("apply -f chat.yaml", "(did you mean -C FOLDER?)"),
        ("deploy -f chat.yaml", "(did you mean -C FOLDER?)"),
        ("apply --dry-run", "(did you mean `reconcile plan`?)"),
        ("apply --yes", "(nothing is asked: leave --yes out)"),
        ("-V", "(did you mean `reconcile version`?)"),
        ("plan chat", "(it is about the whole fleet, which -C FOLDER names)"),
        ("validate .", "(it is about the whole fleet, which -C FOLDER names)"),
        ("run chat", "(`reconcile ask NAME` asks a model, `reconcile deploy MODEL` adds one)"),
        ("logs chat chat", "unrecognized arguments: chat; see"),
        ("explain --local chat", "(chat is taken for a node: write --local behind the"),
        ("explain", "required: REF; see"),
        ("ask chat hi --max-tokens 0", "--max-tokens: '0': write a whole number, 1 or more; see"),
        ("deploy x --context-size 8k", "--context-size: '8k': write a whole number, 1 or more"),
        ("completion bsh", "'bsh': it is one of bash, zsh, fish (did you mean bash?)"),
    ],
)
def test_what_a_command_does_not_take_is_answered_with_what_may_be_meant(
    line: str, hint: str
) -> None:
    with pytest.raises(UsageError) as wrong:
        read(f"reconcile {line}")

    assert hint in str(wrong.value)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("store ls", "(did you mean list?)"),
        ("store remove tiny", "(did you mean rm?)"),
        ("store prune", "(did you mean gc?)"),
        ("store imprt", "(did you mean import?)"),
        ("store sing", "'sing': it is one of list, "),
        ("store gc --dry-rn", "(did you mean --dry-run?)"),
        ("status -o yaml", "'yaml': it is one of text, json;"),
    ],
)
def test_the_agents_words_likewise(words: str, hint: str) -> None:
    with pytest.raises(UsageError) as wrong:
        read(f"fleet-agent {words}")

    assert hint in str(wrong.value)


def test_an_option_that_leaves_no_choice_is_not_in_a_help() -> None:
    for command in ("deploy", "install", "uninstall"):
        assert "--output" not in parser_for(f"reconcile {command}").format_help()
    assert "text, json, sarif, github" in parser_for("reconcile validate").format_help()


def test_a_help_shows_what_is_a_commands_own_and_names_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def printed(*words: str) -> str:
        with pytest.raises(SystemExit):
            reconciler.cli.main(["logs", *words])
        return capsys.readouterr().out

    own, everything = printed("--help"), printed("--all", "-h")

    assert reconciler.cli.main(["help", "logs", "--all"]) == 0
    assert capsys.readouterr().out == everything
    assert re.search(r"^  -f, --follow ", own, re.MULTILINE)
    assert not re.search(r"^  --kubeconfig FILE", own, re.MULTILINE)
    assert everything.index("--follow ") < everything.index("\nthe fleet:\n")
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", everything)) - {"--all"}
    assert options <= set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", own))


@pytest.mark.parametrize("program", ["reconcile", "fleet-agent"])
def test_the_manual_page_has_every_command_and_option_in_the_language_of_man(
    program: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    agent = ["--agent"] if program == "fleet-agent" else []

    assert reconciler.cli.main(["help", "--man", *agent]) == 0

    page = capsys.readouterr().out
    plain = page.replace("\\-", "-")
    for command in all_commands():
        if command.startswith(f"{program} "):
            assert f'.SS "{command}"' in plain
            actions = [a for a in parser_for(command)._actions if a.help != argparse.SUPPRESS]
            for option in {a.option_strings[-1] for a in actions if a.option_strings} - {"--help"}:
                assert re.search(rf"^\.B .*{option}\b", plain, re.MULTILINE), (command, option)
    assert ('.SS "fleet-agent store import"' in plain) == bool(agent)
    file = tmp_path / f"{program}.1"
    file.write_text(page)
    if mandoc := shutil.which("mandoc"):
        found = subprocess.run(
            [mandoc, "-T", "lint", "-W", "warning", file],
            capture_output=True,
            text=True,
            check=False,
        )
        undated = "missing date"  # the same page on each day
        assert [line for line in found.stdout.splitlines() if undated not in line] == []
    else:
        pytest.skip("mandoc is not installed: what it would find is not known")
