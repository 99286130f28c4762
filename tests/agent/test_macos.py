"""The agent's own branches for macOS. On Linux they run with tests.support.as_mac."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agent.machine.memory_host import host_memory
from agent.machine.pressure import read_pressure

REPOSITORY = Path(__file__).parents[2]
_BEGIN = """
import os, select, signal, socket, subprocess, sys, time
from tests.support import as_mac
from agent.process import identity
from agent.process.launch import Child, Identity
from agent.process.pidwatch import PidWatch

def child(process, **facts):
    known = identity.identity_of(process.pid) or Identity(process.pid, "0", identity.boot_id())
    return Child(known, "marker", 0.0, **facts)

woken, waking = socket.socketpair()
watch = PidWatch(woken.fileno())
"""


def run(code: str, **variables: str) -> None:
    """In a Python of its own. AssertionError with what it printed: it failed."""
    program = _BEGIN + textwrap.dedent(code)
    done = subprocess.run(
        (sys.executable, "-W", "ignore::ResourceWarning", "-c", program),
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_end_of_a_process_is_seen_at_once() -> None:
    run("""
        process = subprocess.Popen(["sleep", "600"])
        assert watch.add(child(process))
        assert watch.wait(0.05) == ()
        process.kill()
        assert watch.wait(30) == (process.pid,)
        assert os.waitpid(process.pid, os.WNOHANG)[0] == process.pid
        watch.remove(process.pid)
        assert watch.wait(0.05) == ()
    """)


def test_a_process_that_ended_before_it_was_watched_is_not_waited_for_in_vain() -> None:
    run("""
        process = subprocess.Popen(["true"])
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert watch.add(child(process))
        assert watch.wait(30) == (process.pid,)
        watch.remove(process.pid)

        process.wait()
        assert not watch.add(child(process, adopted=True)), "of an earlier life: nobody reaps it"
        assert watch.wait(0.05) == ()
    """)


@pytest.mark.skipif(sys.platform == "darwin", reason="a real kernel is early when it likes")
def test_an_end_that_is_told_before_the_process_can_be_reaped_is_not_lost() -> None:
    run("""
        process = subprocess.Popen(["sleep", "600"])
        watch.add(child(process))
        as_mac.early.add(process.pid)
        assert watch.wait(0.05) == (), "it still lives"
        as_mac.early.clear()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert watch.wait(30) == (process.pid,)
        watch.remove(process.pid)
        assert watch.wait(0.05) == ()
    """)


def test_a_byte_wakes_who_waits() -> None:
    run("""
        waking.send(b"!")
        began = time.monotonic()
        assert watch.wait(30) == ()
        assert time.monotonic() - began < 20
    """)


@pytest.mark.skipif(sys.platform == "darwin", reason="nobody sets the clock of a Mac for a test")
def test_a_clock_that_is_set_makes_no_process_a_stranger(tmp_path: Path) -> None:
    """Symptom: after the clock of a Mac was set, its agent knew none of its models any more: it
    could not stop them, and started each a second time, on a port that was taken."""
    sysctl = tmp_path / "sysctl"
    sysctl.write_text('#!/bin/sh\n[ "$*" = "-n kern.bootsessionuuid" ] && echo 9F1C-BOOT\n')
    sysctl.chmod(0o755)

    run(
        """
        import psutil
        process = subprocess.Popen(["sleep", "600"])
        before = child(process).identity
        was = psutil.boot_time()
        psutil.boot_time = psutil._pslinux.boot_time = lambda: was + 100
        again = subprocess.run(
            [sys.executable, "-c", "from tests.support import as_mac;"
             "from agent.process import identity; print(identity.boot_id())"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        assert (before.boot, again) == ("9F1C-BOOT", "9F1C-BOOT")
        assert identity.identity_of(process.pid) == before
        process.kill()
        """,
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    )


@pytest.mark.skipif(sys.platform != "darwin", reason="only a Mac has vm_stat and its levels")
def test_memory_is_what_the_tools_of_a_mac_say() -> None:
    pages = subprocess.run(("vm_stat",), capture_output=True, text=True, check=True).stdout
    (page_bytes,) = map(int, re.findall(r"page size of (\d+) bytes", pages))
    counted = {n: int(c) for n, c in re.findall(r"^Pages (.+?): +(\d+)\.$", pages, re.MULTILINE)}
    total = subprocess.run(("sysctl", "-n", "hw.memsize"), capture_output=True, text=True)

    found, pressure = host_memory(), read_pressure()

    assert found is not None
    assert found.total == int(total.stdout)
    free = (counted["free"] + counted["inactive"] + counted["speculative"]) * page_bytes
    assert abs(found.total - found.in_use - free) < found.total / 10
    assert pressure is not None
    assert pressure.level in ("normal", "warning", "critical")


@pytest.mark.skipif(sys.platform == "darwin", reason="e2e/test_launchd.py has the real one")
def test_a_job_is_installed_with_a_private_folder_for_its_log(tmp_path: Path) -> None:
    """Symptom: on a Mac where no agent ever ran launchd started none: its log could not be made."""
    log = tmp_path / "state/agent.log"
    launchctl = tmp_path / "launchctl"
    launchctl.write_text(
        f'#!/bin/sh\n[ "$1" != print ] || exit 113\n[ "$1" != bootstrap ] || : > {log}\n'
    )
    launchctl.chmod(0o755)

    run(
        f"""
        from agent.cli import main
        words = ["--fleet", "https://git.lan/fleet.git", "--state-dir", "{log.parent}"]
        assert main(["install", *words]) == 0
        """,
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        HOME=str(tmp_path),
    )

    assert log.parent.stat().st_mode & 0o777 == 0o700
    assert log.exists()
    assert (tmp_path / "Library/LaunchAgents/dev.llmkube.fleet-agent.plist").is_file()


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform == "darwin", reason="it runs as it is on a Mac")
def test_processes_are_found_again_by_what_a_mac_knows_of_them(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.path.append({str(REPOSITORY)!r})\nimport tests.support.as_mac\n"
    )  # in the programs that the tests start, too
    by_their_identity = "outlive or reboot or stranger or marker or death"
    words = ("-p", "no:randomly", "-q", f"--basetemp={tmp_path / 'inner'}", "-k", by_their_identity)

    done = subprocess.run(
        (sys.executable, "-m", "pytest", *words, "tests/agent/test_adoption.py"),
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_XDIST_WORKER": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout
