"""For tests/project/test_suite_run.py: not collected by itself."""

import os
import sys
from pathlib import Path


def test_leaves_a_process_behind(tmp_path: Path) -> None:
    if os.fork() == 0:
        os.setsid()
        os.chdir(tmp_path)
        os.execv(sys.executable, (sys.executable, "-c", "import time; time.sleep(600)"))
