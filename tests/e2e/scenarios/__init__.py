"""What happens to a fleet on a machine, as rows: a dry run, the pass, and a dry run after it.

    Scenario(
        "a service is renamed",                    # a sentence; it is the test's name
        before=running("a"),                       # what is applied first; nothing, without
        after=(gone("a"), serve("b")),             # what a person or the world then does
        codes="2 0 0",                             # of --dry-run, --once, --dry-run
        counts="1 create, 1 delete",               # what the dry run and the pass say they do
    )

A new scenario is one such entry in the file of its theme. Each begins with the node `here` and the
model `tiny` in a folder (`world.here`, which a step may write again). A step is a mapping of files,
or a function of the World: it may kill what runs, take a port, make a commit, start a server.

The test asserts that the plan of the dry run is the plan of the pass, word for word, that the exit
codes are those, and that what the plan does not name keeps its process. `words` must be among what
the dry run or the pass says. `timeout` bounds a pass that waits for what will not come. `differs`
is the reason where a dry run and a pass see something else by nature: then the plans may differ.

    pytest -s tests/e2e/test_scenarios.py          # prints the table
"""

from tests.e2e.scenarios import disk, edits, life, limits, machine, ports, revisions, sources
from tests.e2e.scenarios.world import Scenario, World, counts, play

SCENARIOS = (
    *(*edits.ROWS, *limits.ROWS, *disk.ROWS, *ports.ROWS),
    *(*revisions.ROWS, *life.ROWS, *machine.ROWS, *sources.ROWS),
)

__all__ = ["SCENARIOS", "Scenario", "World", "counts", "play"]
