"""For tests/project/test_suite_run.py: not collected by itself."""

import subprocess
import sys
import tempfile
from pathlib import Path


def test_starts_a_process_and_waits_for_ever(tmp_path: Path) -> None:
    sleep = (sys.executable, "-c", "import time; time.sleep(600)")
    tempfile.mkdtemp()
    child = subprocess.Popen(sleep, cwd=tmp_path, env={}, start_new_session=True)
    child.wait()
