"""`reconcile demo`: a real small model, on a terminal and without one."""

from __future__ import annotations

import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fcntl import ioctl
from pathlib import Path

import pytest

from reconciler.cli.demo import QUESTION, ports_of, private_copy, without_engine
from reconciler.console.value import ALL_SERVICE_PORTS
from tests.support.client import complete, context_size
from tests.support.fleets import model
from tests.support.http import FileServer
from tests.support.ports import own_row
from tests.support.real_models import SMOLLM2, link_model
from tests.support.reconciler import Fleet, Machine
from tests.support.served_node import request
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e
PROGRAM = Path(sys.executable).parent / "reconcile"


def _with_model(folder: Path) -> Path:
    """A demo folder whose store has the model, as after an earlier demo."""
    link_model(SMOLLM2, folder / "state/models")
    return folder


def test_without_a_terminal_it_asks_both_services_stops_everything_and_ends_with_0(
    machine: Machine,
) -> None:
    folder = _with_model(machine.root / "demo")

    done = machine.reconcile("demo", "--state-dir", str(folder), env={"PATH": os.defpath})

    assert done.code == 0, done.err
    assert "EngineMissing" not in done.out
    assert done.err.count("left out: services/switch.yaml: ") == 1
    assert f"> {QUESTION}" in done.out
    assert re.search(r"^chat: .*Paris", done.out, re.MULTILINE)
    assert re.search(r"^search: a vector of 576 numbers, ", done.out, re.MULTILINE)
    assert "2 to create" in done.out
    for service in ("default/chat", "default/search"):
        assert f"{service}  ready at http://127.0.0.1:" in done.err
    assert machine.processes() == []

    search = folder / "fleet/services/search.yaml"
    large = re.sub(r"contextSize: \d+", "contextSize: 134217728", search.read_text())
    search.write_text(large)
    blocked = machine.reconcile("demo", "--state-dir", str(folder))
    assert "MemoryFits" in blocked.out
    assert (blocked.code, "Paris" in blocked.out) == (0, True)

    search.write_text(search.read_text().replace("contextSize: 1", "contextSize: none"))
    refused = machine.reconcile("demo", "--state-dir", str(folder))
    assert (refused.code, "is refused" in refused.err) == (3, True)

    search.unlink()  # as in a copy of an earlier version
    again = machine.reconcile("demo", "--state-dir", str(folder))
    assert again.code == 0
    assert "Paris" in again.out
    assert "download" not in again.out.lower()


def test_what_has_no_engine_here_is_left_out_of_a_copy_until_there_is_one(tmp_path: Path) -> None:
    router = "services/switch.yaml"
    missing = without_engine({"llama-server": "/nope"})
    copy = private_copy(tmp_path / "fleet", fresh=False, without=missing)

    assert [*missing] == [router]
    assert without_engine({"llama-server": sys.executable}) == {}
    assert not (copy / router).exists()
    assert not (private_copy(copy, fresh=False) / router).exists()
    assert (private_copy(copy, fresh=True) / router).exists()


def test_two_demos_run_at_once_and_beside_an_agent_that_is_at_work(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")  # of the same name as the demo's own
    machine.start("-C", fleet.url, "--local")
    chat = machine.wait_ready("chat")

    folders = [_with_model(machine.root / name) for name in ("one", "two")]
    parts = {ports_of(folder, ALL_SERVICE_PORTS) for folder in map(Path, "abcdefgh")}
    with own_row() as one, own_row() as two:
        demos = [
            machine.start(
                "demo", "--state-dir", str(folder), "--service-ports", f"{row[0]}-{row[-1]}"
            )
            for folder, row in zip(folders, (one, two), strict=True)
        ]
        for demo in demos:
            assert demo.process.wait(timeout=PATIENCE_S) == 0, demo.err
            assert "Paris" in demo.out
    assert len(parts) > 6  # each in ports of its own, of all that there are
    after = machine.instance("chat")
    assert after
    assert (after.pid, after.ready) == (chat.pid, True)
    assert chat.endpoint
    assert complete(chat.endpoint)


@dataclass
class Terminal:
    """A program on a pseudo-terminal, and what it has shown."""

    process: subprocess.Popen[bytes]
    _shown: bytearray = field(default_factory=bytearray)

    @property
    def shown(self) -> str:
        return self._shown.decode(errors="replace")

    @property
    def plain(self) -> str:
        """Without colours and cursor movements."""
        return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", self.shown)

    def read(self, descriptor: int) -> None:
        with suppress(OSError):  # EIO: the program has closed its side
            while data := os.read(descriptor, 65536):
                self._shown += data

    def wait_shown(self, text: str, timeout_s: float = PATIENCE_S) -> None:
        try:
            wait_for(
                lambda: text in self.plain or self.process.poll() is not None, timeout_s=timeout_s
            )
            assert text in self.plain
        except AssertionError:
            raise AssertionError(f"never {text!r} on the terminal:\n{self.plain}") from None


@contextmanager
def _terminal(machine: Machine, *words: str) -> Iterator[Terminal]:
    outer, inner = pty.openpty()
    ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        [str(PROGRAM), *words],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env=machine.environment | {"TERM": "xterm-256color"},
        cwd=machine.root,
        start_new_session=True,
    )
    os.close(inner)
    terminal = Terminal(process)
    reader = threading.Thread(target=terminal.read, args=(outer,))
    reader.start()
    try:
        yield terminal
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join(timeout=PATIENCE_S)
        os.close(outer)


def test_on_a_terminal_it_shows_plan_and_address_follows_an_edit_and_ctrl_c_stops_it(
    machine: Machine,
) -> None:
    folder = _with_model(machine.root / "demo")

    with _terminal(machine, "demo", "--state-dir", str(folder)) as terminal:
        terminal.wait_shown("Ctrl-C stops everything.")
        shown = terminal.plain
        assert "2 to create" in shown
        assert "default/search  ready at http://127.0.0.1:" in shown
        assert "default/chat  ready at http://127.0.0.1:" in shown
        page = re.search(r"See it in a browser: (\S+)\r\n", shown)
        assert page
        assert "default/search" in request(page[1], "GET", "/").text
        assert "\x1b[" in terminal.shown  # with colours
        pasted = re.search(r"  (curl (\S+)/v1/chat/completions -d '\r\n.+?')\r\n", shown, re.DOTALL)
        assert pasted
        endpoint = pasted[2]
        assert f"chat: base_url {endpoint}/v1\r\n" in shown
        assert [line for line in pasted[0].splitlines() if len(line) > 60] == []
        answer = subprocess.run(
            pasted[1].replace("curl", "curl -sS"),
            shell=True,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Paris" in answer.stdout, answer

        file = folder / "fleet/services/chat.yaml"
        text = file.read_text()
        assert "contextSize: 4096" in text
        file.write_text(text.replace("contextSize: 4096", "contextSize: 8192"))
        terminal.wait_shown("4096 -> 8192")
        wait_for(lambda: _context(endpoint) == 8192)
        assert re.search(r"contextSize\s+4096 -> 8192\s+restart", terminal.plain)

        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(timeout=PATIENCE_S) == 0

    assert machine.processes() == []
    assert "Traceback" not in terminal.plain


def _context(endpoint: str) -> int | None:
    try:
        return context_size(endpoint)
    except OSError:  # while it restarts
        return None


def test_a_download_on_a_terminal_has_a_progress_bar(machine: Machine, fleet: Fleet) -> None:
    with FileServer(b"GGUF" + bytes(1 << 20)) as server:
        server.go_on.clear()  # it stops after its first 64 KiB
        fleet.repo.write("models/slow.yaml", model("slow", source=server.url))
        fleet.push_service("slow", "slow")

        with _terminal(machine, "-C", fleet.url, "--local") as terminal:
            terminal.wait_shown("] 6 %  64 KiB of 1.0 MiB")
            terminal.process.send_signal(signal.SIGTERM)
            assert terminal.process.wait(timeout=PATIENCE_S) == 0


def test_without_any_engine_it_ends_and_says_why(machine: Machine) -> None:
    done = machine.reconcile("demo", env={"FLEET_LLAMA_SERVER": "/nope"})

    assert done.code == 3
    assert "EngineMissing" in done.out
    assert "the demo ends without an answer" in done.err
    assert machine.processes() == []
