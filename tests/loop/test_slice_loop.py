"""The loop of an agent over commits with errors: what runs, what is held, across restarts."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.node.follow_options import FollowOptions
from agent.node.node import owned
from agent.node.settings import Settings
from reconciler.loop import Loop, Wake, steps_of
from reconciler.loop.journal import SourceJournal
from reconciler.source.directory import DirectorySource
from reconciler.source.git import GitSource
from reconciler.source.history import HistoryFile
from reconciler.source.load import reader
from reconciler.source.slice import slice_reader
from tests.support.fleets import document, model, node, service, small_fleet, write_fleet
from tests.support.repos import Repo
from tests.support.said import Converged, Said
from tests.support.targets import InMemoryTarget

BROKEN = "# inference.llmkube.dev/\nspec: [\n"


def placed(name: str, on: str = "mac", **spec: object) -> str:
    return service(name, **{"placement": {"nodes": [on]}, **spec})


@dataclass
class Agent:
    """The agent of node mac, which may be started again over the same state."""

    folder: Path
    repo: Repo
    target: InMemoryTarget = field(default_factory=InMemoryTarget)
    said: Said = field(default_factory=Said)
    strict: bool = False
    is_whole: bool = False  # refuses a revision with any error, as `apply --local` does

    def __post_init__(self) -> None:
        self.steps = steps_of(self.target)
        self.restart()

    def restart(self) -> None:
        source = GitSource(str(self.repo.remote), cache_dir=self.folder / "cache")
        history = HistoryFile(self.folder / "history.json")
        journal = SourceJournal(history, source, strict=self.strict)
        own_slice = slice_reader("mac", lambda: journal.last)
        self.loop = Loop(
            source=source,
            read=reader() if self.is_whole else own_slice,
            reread=own_slice,
            journal=journal,
            listeners=[self.said],
            wake=Wake(),
            steps=self.steps,
        )

    def one_pass(self) -> set[str]:
        self.loop.fetch()
        self.loop.sync()
        return self.target.names()


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    repo = Repo.create(tmp_path)
    files = {
        "mac.yaml": node("mac"),
        "pc.yaml": node("pc"),
        "model.yaml": model(),
        "chat.yaml": placed("chat"),
        "far.yaml": placed("far", "pc"),
    }
    repo.publish(files)
    agent = Agent(tmp_path, repo)
    assert agent.one_pass() == {"chat"}
    return agent


def test_a_file_that_cannot_be_read_keeps_what_stood_in_it_also_after_a_restart(
    agent: Agent,
) -> None:
    pid = agent.target.pid("chat")
    agent.repo.publish({"chat.yaml": BROKEN, "more.yaml": placed("more")})

    first = agent.one_pass()
    agent.restart()
    second = agent.one_pass()
    agent.repo.publish({"again.yaml": placed("again")})
    third = agent.one_pass()
    agent.repo.publish({"chat.yaml": placed("chat")})
    agent.one_pass()

    assert (first, second, third) == (
        {"chat", "more"},
        {"chat", "more"},
        {"chat", "more", "again"},
    )
    assert agent.target.pid("chat") == pid
    assert {p.rule for p in agent.said.problems} == {"YamlSyntax"}
    assert agent.said.plans[-1].blocked == ()


@pytest.mark.parametrize(
    "broken",
    [BROKEN, "<html>sign in</html>\n", placed("chat", contextSize=-1), placed("chat", "nowhere")],
    ids=["syntax", "header", "schema", "placement"],
)
def test_a_held_service_is_not_removed_unasked_by_another_fleet(
    agent: Agent, broken: str, tmp_path: Path
) -> None:
    agent.repo.publish({"chat.yaml": broken, "more.yaml": placed("more")})
    assert agent.one_pass() == {"chat", "more"}
    (tmp_path / "other").mkdir()
    agent.repo = Repo.create(tmp_path / "other")
    agent.repo.publish({"mac.yaml": node("mac"), "model.yaml": model()})
    agent.restart()

    assert agent.one_pass() == {"chat", "more"}
    (question,) = agent.said.plans[-1].blocked
    assert {ref.label for ref in question.holds} == {"default/chat", "default/more"}
    assert "another fleet" in question.message


@pytest.mark.parametrize("broken", [BROKEN, "<html>sign in</html>\n"], ids=["syntax", "header"])
def test_a_program_that_refuses_whole_revisions_removes_nothing_that_an_agent_held(
    agent: Agent, broken: str
) -> None:
    agent.repo.publish({"chat.yaml": broken, "more.yaml": placed("more")})
    in_part = agent.one_pass()
    agent.is_whole = True

    seen = []
    for _ in range(2):
        agent.restart()
        seen.append(agent.one_pass())
    agent.repo.publish({"chat.yaml": placed("chat")})

    assert seen == [in_part, in_part] == [{"chat", "more"}] * 2
    assert agent.one_pass() == {"chat", "more"}
    assert agent.loop.revisions.state().refused is None


def test_what_moves_out_of_sight_beside_a_broken_file_goes_once_that_one_is_mended(
    agent: Agent,
) -> None:
    (agent.repo.work / "chat.yaml").unlink()
    agent.repo.publish({"far.yaml": BROKEN})
    beside = agent.one_pass()
    reasons = [item.reason for item in agent.said.plans[-1].blocked]
    agent.repo.publish({"far.yaml": placed("far", "pc")})

    afterwards = agent.one_pass()

    assert (beside, afterwards) == ({"chat"}, set())
    assert reasons == ["RevisionIncomplete"]


def test_a_part_that_is_refused_is_reported_with_the_revision_that_is_applied(
    agent: Agent,
) -> None:
    head = agent.repo.publish({"chat.yaml": placed("chat", contextSize="many")})

    agent.one_pass()
    state = agent.loop.revisions.state()
    agent.restart()
    again = agent.loop.revisions.state()
    agent.repo.publish({"chat.yaml": placed("chat")})
    agent.one_pass()

    assert (state.applied, state.refused) == (head, head)
    assert state.problems == again.problems
    assert "chat.yaml:" in state.problems[0]
    assert agent.loop.revisions.state().refused is None


def test_errors_elsewhere_are_said_once_and_refuse_nothing(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    agent.repo.publish({"far.yaml": placed("far", "pc", modelRef="nothing")})
    agent.one_pass()
    agent.repo.publish({"more.yaml": placed("more")})
    running = agent.one_pass()

    told = [r.message for r in caplog.records if "nothing" in r.message]
    assert running == {"chat", "more"}
    assert agent.said.problems == []
    assert len(told) == 1


def test_an_older_agent_goes_on_with_a_newer_fleet_also_after_a_restart(agent: Agent) -> None:
    policy = document("Fleet", "home", {"drift": "report"})
    agent.repo.publish({"fleet.yaml": policy})
    agent.one_pass()
    agent.repo.publish(
        {
            "fleet.yaml": document("Fleet", "home", {"drift": "report", "zzz": 1}),
            "mac.yaml": node("mac", zzz=1),
            "chat.yaml": placed("chat", zzz=1),
        }
    )
    agent.one_pass()
    agent.restart()
    agent.repo.publish({"more.yaml": placed("more")})

    running = agent.one_pass()

    assert running == {"chat", "more"}
    assert [(b.ref.name, b.reason) for b in agent.said.plans[-1].blocked] == [
        ("chat", "AgentTooOld")
    ]
    assert agent.loop.desired is not None
    assert agent.loop.desired.fleet.policy.drift == "report"
    assert agent.loop.revisions.state().refused is None


def test_a_fresh_agent_does_not_begin_without_a_node_that_it_can_read(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    repo.publish({"mac.yaml": node("mac", runtimes=3), "m.yaml": model(), "s.yaml": placed("s")})
    agent = Agent(tmp_path, repo)

    agent.loop.fetch()

    assert agent.loop.desired is None
    assert [p.path for p in agent.said.problems] == ["mac.yaml"]


def test_a_fresh_agent_leaves_what_may_be_meant_for_a_node_that_it_cannot_read(
    tmp_path: Path,
) -> None:
    repo = Repo.create(tmp_path)
    both = service("both", placement={"nodes": ["pc", "mac"]})
    files = {"mac.yaml": node("mac"), "pc.yaml": node("pc", zzz=1), "m.yaml": model()}
    repo.publish(files | {"own.yaml": placed("own"), "any.yaml": service("any"), "both.yaml": both})
    agent = Agent(tmp_path, repo)

    assert agent.one_pass() == {"own"}


@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        pytest.param({"chat.yaml": BROKEN}, {"chat.yaml": placed("chat")}, id="by its file"),
        pytest.param(
            {"chat.yaml": placed("chat", contextSize="many")},
            {"chat.yaml": placed("chat")},
            id="by a field",
        ),
        pytest.param({"far.yaml": BROKEN}, {"far.yaml": placed("far", "pc")}, id="elsewhere"),
    ],
)
def test_nothing_is_settled_while_something_is_held(
    agent: Agent, broken: dict[str, str], mended: dict[str, str]
) -> None:
    converged = Converged()
    agent.loop.listeners.add(converged)
    agent.repo.publish(broken)

    agent.one_pass()
    agent.loop.sync()
    during = list(converged.revisions)
    head = agent.repo.publish(mended)
    agent.one_pass()

    assert (during, converged.revisions) == ([], [head])


def test_under_strict_history_exactly_the_accepted_head_is_followed(agent: Agent) -> None:
    from reconciler.loop.accepted import let_in

    agent.strict = True
    agent.restart()
    agent.repo.write("chat.yaml", placed("other"))
    agent.repo.git("commit", "-q", "--all", "--amend", "-m", "rewritten")
    agent.repo.push(force=True)
    held = agent.one_pass()
    let_in(agent.folder / "history.json", agent.repo.head())

    followed = agent.one_pass()
    agent.repo.git("commit", "-q", "--amend", "-m", "again")
    agent.repo.push(force=True)
    agent.one_pass()

    assert (held, followed) == ({"chat"}, {"other"})
    assert "held (--strict-history)" in agent.loop.revisions.state().held


def test_nothing_is_held_once_the_source_is_back_at_what_runs(agent: Agent) -> None:
    agent.strict = True
    agent.restart()
    agent.one_pass()
    good = agent.repo.head()
    agent.repo.git("commit", "-q", "--amend", "-m", "rewritten")
    agent.repo.push(force=True)
    agent.one_pass()
    before = agent.loop.revisions.state().held
    agent.repo.git("reset", "-q", "--hard", good)
    agent.repo.push(force=True)

    names = agent.one_pass()

    assert "held (--strict-history)" in before
    assert (names, agent.loop.revisions.state().held) == ({"chat"}, "")


def test_what_a_lost_header_holds_stays_after_a_restart_without_the_remote(agent: Agent) -> None:
    agent.repo.publish({"chat.yaml": "", "more.yaml": placed("more")})
    agent.one_pass()
    agent.repo.remote.rename(agent.repo.remote.with_name("gone"))
    agent.restart()

    running = agent.one_pass()

    assert agent.loop.desired is not None
    assert running == {"chat", "more"}


def test_files_that_were_read_to_find_the_node_are_not_parsed_again(tmp_path: Path) -> None:
    fleet = write_fleet(tmp_path / "fleet", small_fleet())
    settings, following = Settings(tmp_path / "state"), FollowOptions(own_slice=True)

    source = DirectorySource(fleet)
    with owned(source, None, settings, Wake(), [], following, stop_children=True) as here:
        to_find_it = list(following.cache.files.values())
        here.loop.fetch()
        followed = list(following.cache.files.values())

    assert len(followed) == len(small_fleet())
    assert all(map(operator.is_, to_find_it, followed))
