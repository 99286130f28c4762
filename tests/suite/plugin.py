"""The plugin of pytest with which `make test` runs: in its controller, and in each worker."""

from __future__ import annotations

import gc
import os
from collections.abc import Collection, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.suite import durations
from tests.suite.builds import BUILDS, pending
from tests.suite.distribution import Distribution
from tests.suite.progress import Printer, Progress
from tests.suite.results import Results
from tests.suite.schedule import Case, case_of
from tests.support.wait import RUN_FOLDER


def pytest_configure(config: pytest.Config) -> None:
    results = Results(Path(os.environ[RUN_FOLDER]))
    worker = getattr(config, "workerinput", None)
    if worker is None:
        config.pluginmanager.register(_Controller(config, results))
        return
    config.pluginmanager.register(_Worker())
    if worker["workerid"] == "gw0":  # all of them find the same tests
        config.pluginmanager.register(_Finder(results))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """In a worker: say where a test that failed has its files."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and folder is not None:
        report.user_properties.append(("folder", str(folder)))
    return report


class _Worker:
    """In each worker."""

    def pytest_sessionstart(self) -> None:
        """Looking for garbage among what is found takes a quarter of the time of finding it."""
        gc.disable()

    @pytest.hookimpl(tryfirst=True)  # before pytest chooses by markers
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark what is known to be slow."""
        known = durations.known()
        for item in items:
            if item.nodeid in known:
                item.add_marker("slow")

    def pytest_collection_finish(self) -> None:
        """What was found stays, so the collector of garbage need not look at it again."""
        gc.collect()
        gc.freeze()
        gc.enable()


class _Finder:
    """In a worker: only workers know the markers of tests."""

    def __init__(self, results: Results) -> None:
        self._results = results

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._results.write_marks(
            {item.nodeid: sorted({m.name for m in item.iter_markers()}) for item in session.items}
        )


class _Controller:
    """In the controller: hand out tests, say how far they are, and note what became of each."""

    def __init__(self, config: pytest.Config, results: Results) -> None:
        self._results = results
        self._workers: int = config.option.numprocesses
        self._progress = Progress(self._workers, waits=self._builds_waited_for)
        self._printer = Printer(self._progress)

    def pytest_xdist_make_scheduler(self) -> Distribution:
        return Distribution(self._workers, self._cases, _there)

    def pytest_sessionstart(self) -> None:
        self._printer.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._printer.stop()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._progress.begins(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._progress.ends(nodeid)
        self._results.note_end(nodeid, self._progress.done[nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._progress.fails(report.nodeid)
            folder = dict(report.user_properties).get("folder")
            details = self._results.note_failure(report.nodeid, report.longreprtext, folder)
            self._printer.say(f"FAILED {report.nodeid}\n       {details}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No letter for each test: the line says how many."""
        if report.failed:
            return "failed" if report.when == "call" else "error", "", "FAILED"
        if report.when == "call" or report.skipped:
            return report.outcome, "", "SKIPPED" if report.skipped else ""
        return "", "", ""

    def _builds_waited_for(self) -> list[str]:
        cases = self._progress.cases.copy().values()
        return [b.what for b in pending() if any(b.name in case.needs for case in cases)]

    def _cases(self) -> list[Case]:
        known, builds = durations.known(), {build.name for build in BUILDS}
        marks = self._results.marks()
        found = [case_of(test, marks[test], builds, known) for test in marks]
        self._progress.cases = {case.id: case for case in found}
        return found


def _there() -> Collection[str]:
    """Which builds are there."""
    lacking = {build.name for build in pending()}
    return {build.name for build in BUILDS} - lacking
