"""Every option of `fleet-agent run` and its variable, and what a command line becomes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from agent.cli import parser_of
from agent.cli import run as run_command
from agent.cli.pod_options import STORE
from agent.cli.run import check_source, options_of_run, run_arguments
from reconciler import runtimes
from reconciler.api.errors import UsageError
from reconciler.console import value
from reconciler.console.option import add, program_option, programs_of
from reconciler.console.shared import DEFAULTS, STATE_DIR
from reconciler.console.value import PortRange
from reconciler.runtimes import RUNTIMES

# option: (a text as a person writes it, the value that it is)
ROWS: dict[str, tuple[str, Any]] = {
    "fleet": ("https://git.example/fleet.git", "https://git.example/fleet.git"),
    "ref": ("main", "main"),
    "path": ("clusters/home", "clusters/home"),
    "node": ("mac-07", "mac-07"),
    "namespace": ("team", "team"),
    "model-store": ("/srv/models", Path("/srv/models")),
    "port": ("9191", 9191),
    "listen": ("0.0.0.0", "0.0.0.0"),
    "client-ca-file": ("/etc/ca.pem", Path("/etc/ca.pem")),
    "host-ip": ("192.168.1.50", "192.168.1.50"),
    "api-key-file": ("/run/api-key", Path("/run/api-key")),
    "runtime": ("llamacpp", "llama-server"),
    "runtimes": ("llama-server, mlx-server", ("llama-server", "mlx-server")),
    "service-ports": ("31000-31009", PortRange(31000, 31009)),
    "probe-interval": ("2s", "2s"),
    "drift-interval": ("5m", "5m"),
    "sample-interval": ("500ms", "500ms"),
    "memory-fraction": ("0.5", 0.5),
    "memory-check-mode": ("warn", "warn"),
    "log-level": ("debug", "debug"),
    "interval": ("5m", "5m"),
    "state-dir": ("/var/lib/fleet", "/var/lib/fleet"),
    "max-downloads": ("3", 3),
    "keep-free": ("5Gi", 5 * 2**30),
    "hf-token-file": ("/run/hf", Path("/run/hf")),
    "offline": ("1", True),
    "git-token-file": ("/run/token", Path("/run/token")),
    "ssh-key-file": ("/run/key", Path("/run/key")),
    "known-hosts-file": ("/run/hosts", Path("/run/hosts")),
    "ca-file": ("/run/ca.pem", Path("/run/ca.pem")),
    "agent-token-file": ("/run/tokens", Path("/run/tokens")),
    "agent-cert-file": ("/run/cert.pem", Path("/run/cert.pem")),
    "agent-key-file": ("/run/key.pem", Path("/run/key.pem")),
    "kubernetes": ("yes", True),
    "standalone": ("1", True),
    "kubeconfig": ("/etc/kubeconfig", Path("/etc/kubeconfig")),
    "context": ("prod", "prod"),
    "strict-history": ("yes", True),
    "confirm": ("prune-0a1b2c3d, prune-4e5f6a7b", ("prune-0a1b2c3d", "prune-4e5f6a7b")),
    "stop-on-exit": ("true", True),
}
PROGRAMS = {program for row in RUNTIMES.values() for program in row.engine.programs}


def parsed(*words: str, **environ: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add(parser, options_of_run(), environ)
    return parser.parse_args(list(words))


def rows() -> list[tuple[str, str, Any]]:
    engines = [(program_option(p), f"/opt/{p}", f"/opt/{p}") for p in sorted(PROGRAMS)]
    return [*((name, *row) for name, row in ROWS.items()), *engines]


def test_the_table_of_this_test_has_every_option() -> None:
    assert {row[0] for row in rows()} == {o.name for o in options_of_run()}


@pytest.mark.parametrize(("name", "text", "value"), rows())
def test_a_variable_says_the_same_as_its_option_and_what_is_typed_wins(
    name: str, text: str, value: Any
) -> None:
    row = next(o for o in options_of_run() if o.name == name)
    switch = row.metavar is None
    words = (f"--{name}",) if switch else (f"--{name}", text)

    typed = parsed(*words)
    said = parsed(**{row.variable: text})
    both = parsed(*words, **{row.variable: "no" if switch else text})

    for args in (typed, said, both):
        assert getattr(args, row.attribute) == value
    assert row.variable.startswith("FLEET_")


def test_models_are_where_another_programs_variable_says_if_nothing_of_ours_does() -> None:
    theirs = {"MODEL_CACHE_PATH": "/models"}
    pods = argparse.ArgumentParser()
    add(pods, (STORE,), {"MODEL_CACHE_PATH": "/cache"})

    assert parsed(**theirs).model_store == Path("/models")
    assert parsed(**theirs, FLEET_MODEL_STORE="/srv").model_store == Path("/srv")
    assert parsed("--model-store", "/typed", **theirs).model_store == Path("/typed")
    assert parsed().model_store is None
    assert pods.parse_args([]).store == Path("/cache")


def test_what_cannot_be_meant_for_us_in_a_variable_of_other_programs_is_left_to_them() -> None:
    def folder(said: str, *words: str) -> Any:
        parser = argparse.ArgumentParser(exit_on_error=False)
        add(parser, DEFAULTS, {"MODEL_CACHE_PATH": said})
        return parser.parse_args(words).model_cache_path

    assert folder("/models/") == folder("", "--model-cache-path", "/models") == "/models"
    assert folder("./cache") is None
    with pytest.raises(argparse.ArgumentError, match="absolute path"):
        folder("/models", "--model-cache-path", "./cache")


@pytest.mark.parametrize(("name", "text", "value"), rows())
def test_the_words_for_a_service_manager_say_the_same_again(
    name: str, text: str, value: Any
) -> None:
    row = next(o for o in options_of_run() if o.name == name)

    words = run_arguments(parsed(**{row.variable: text}))

    assert getattr(parsed(*words), row.attribute) == value


def test_what_is_nowhere_said_needs_no_words() -> None:
    assert run_arguments(parsed()) == ()
    assert run_arguments(parsed(FLEET_NODE="")) == ()  # an empty variable says nothing


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("memory-fraction", "1.5", "such as 0.67"),
        ("memory-check-mode", "off", "enforce, warn"),
        ("port", "http", "a number"),
        ("host-ip", "mac.lan", "does not appear to be"),
        ("runtime", "ollama", "there is llama-server"),
        ("runtime", "llamacpp-router", "serves many models"),
        ("runtimes", "llama-server,ollama", "no runtime named ollama"),
        ("log-level", "loud", "debug, info"),
        ("interval", "soon", "soon"),
        ("probe-interval", "0s", "100ms or more"),
        ("drift-interval", "often", "not a valid duration"),
        ("service-ports", "20000", "FIRST-LAST"),
        ("service-ports", "29999-20000", "the lower one first"),
        ("service-ports", "80-90", "from 1024"),
    ],
)
@pytest.mark.parametrize("typed", [True, False])
def test_a_wrong_value_is_refused_with_the_option_and_what_it_takes(
    name: str, text: str, hint: str, typed: bool
) -> None:
    row = next(o for o in options_of_run() if o.name == name)

    with pytest.raises(argparse.ArgumentError) as caught:
        parsed(*((f"--{name}", text) if typed else ()), **({} if typed else {row.variable: text}))

    assert f"--{name}" in str(caught.value)
    assert hint in str(caught.value)


def test_a_switch_that_is_neither_yes_nor_no_is_refused_with_its_variable() -> None:
    with pytest.raises(UsageError, match="FLEET_STOP_ON_EXIT is 'perhaps'"):
        parsed(FLEET_STOP_ON_EXIT="perhaps")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ((), "--fleet URL"),
        (("--kubernetes",), "needs --node"),
        (("--kubernetes", "--node", "mac", "--fleet", "https://git.example/f.git"), "leave out"),
        (("--fleet", "https://git.example/f.git", "--standalone"), "goes with --kubernetes"),
        (("--fleet", "https://git.example/f.git", "--context", "x"), "goes with --kubernetes"),
    ],
)
def test_there_is_one_place_where_the_desired_state_is(words: tuple[str, ...], hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        check_source(parsed(*words))


def test_every_engine_program_of_the_table_has_an_option_that_finds_its_way() -> None:
    words = [w for p in sorted(PROGRAMS) for w in (f"--{program_option(p)}", f"/opt/{p}")]

    assert programs_of(parsed(*words)) == {p: f"/opt/{p}" for p in PROGRAMS}
    assert set(runtimes.PROGRAMS) == PROGRAMS
    assert {"llama-server", "mlx-server"} <= {program_option(p) for p in PROGRAMS}


def test_help_names_every_variable() -> None:
    parser = argparse.ArgumentParser()
    run_command.add_options(parser)
    add(parser, (STATE_DIR,))

    text = "".join(parser.format_help().split())

    assert all(f"[${o.variable}]" in text for o in options_of_run())
    assert all("default:" in text.split(f"[${o.variable}]")[0].rpartition("[$")[2]
               for o in options_of_run() if o.fallback is not None)  # fmt: skip


def test_a_folder_is_named_absolutely_for_whoever_starts_it_elsewhere(tmp_path: Path) -> None:
    assert parsed("--fleet", "fleet").fleet == str(Path("fleet").absolute())
    assert parsed("--fleet", "git@host:fleet.git").fleet == "git@host:fleet.git"
    assert value.file_path("token").is_absolute()


def test_the_state_of_a_node_is_on_port_9090_unless_told_otherwise() -> None:
    assert parsed().port == 9090


def test_only_a_command_that_prints_json_offers_it() -> None:
    assert "--output" not in parser_of("run").format_help()
    assert "--output" in parser_of("status").format_help()
