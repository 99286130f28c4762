"""What a pull request's comment looks like: exact texts, what is cut of it, and what is obeyed."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from reconciler.api.problem import Counts, Problem, Severity
from reconciler.core.observation import Location, TargetState
from reconciler.core.plan import Action, Blocked, Change, FieldChange, Impact, Plan, Restart
from reconciler.report.links import Links
from reconciler.report.markdown import MOST_BYTES, code
from reconciler.report.plan_markdown import plan_markdown
from reconciler.report.plan_text import plan_text
from reconciler.report.problems import as_markdown
from tests.report.test_plan import busy_plan, cluster_plan
from tests.support.builders import ref

CASES = Path(__file__).parents[1] / "cases" / "plans"
PAGE = "https://github.com/me/fleet"
LINKS = Links(f"{PAGE}/blob/{{commit}}/{{file}}#L{{line}}", f"{PAGE}/commit/{{commit}}", "d" * 40)
HOSTILE = "<script>alert(1)</script> @everyone #1 ``x` [a](b) *b* $x$ | ~~no~~ \x1b[2J\n# H"


@pytest.mark.parametrize(("name", "plan"), [("busy", busy_plan()), ("cluster", cluster_plan())])
def test_a_comment_reads_like_this(name: str, plan: Plan) -> None:
    expected = CASES / f"{name}.md"

    said = plan_markdown(plan, LINKS)

    if os.environ.get("FLEET_UPDATE_CASES"):
        expected.write_text(said)
    assert said == expected.read_text()


def test_a_comment_counts_as_the_text_does() -> None:
    for plan in (busy_plan(), cluster_plan()):
        totals = plan_text(plan, 0.0).splitlines()[-1].removeprefix("Plan: ").partition(". ")[0]

        assert f"**{totals.rstrip('.')}.**" in plan_markdown(plan)


def large_plan(nodes: int, message: str = "") -> Plan:
    """On each node one service that restarts, one that starts, and one that is blocked."""
    changes, blocked, targets = [], [], {}
    for n in range(nodes):
        target = f"node/node-{n}"
        targets[target] = TargetState(target, reachable=True, message=message)
        source = Location(f"services/{n}.yaml", 7, "c" * 40)
        field = FieldChange("contextSize", 4096, 8192, forces_restart=True, source=source)
        changes += [
            Change(
                Action.REPLACE, target, ref(f"grow-{n}"), "SettingsChanged", source,
                fields=(field,), impact=Impact(Restart.RESTART),
            ),
            Change(Action.CREATE, target, ref(f"new-{n}"), "Added", source),
        ]  # fmt: skip
        blocked.append(Blocked(ref(f"large-{n}"), "MemoryFits", "needs 40 GiB", source, target))
    return Plan("0" * 40, tuple(changes), tuple(blocked), (), {}, targets)


@pytest.mark.parametrize("nodes", [20, 70, 300])
def test_what_is_too_long_is_cut_from_the_least_important_on(nodes: int) -> None:
    said = plan_markdown(large_plan(nodes), LINKS)

    assert len(said.encode()) < MOST_BYTES
    assert f"**{nodes} to create, {nodes} to replace, {nodes} blocked.**" in said
    assert {f"large-{n}" for n in range(nodes)} <= {*re.findall(r"`default/(large-\d+)`", said)}
    assert {f"grow-{n}" for n in range(nodes)} <= {*re.findall(r"`default/(grow-\d+)`", said)}
    whole = said.count("</details>")
    assert whole == said.count("<details>")
    if nodes == 20:
        assert whole == nodes
        assert "_Cut to fit" not in said
    else:
        assert whole < nodes
        assert "_Cut to fit a comment: " in said.splitlines()[-1]


def test_what_fits_in_no_way_is_counted() -> None:
    said = plan_markdown(large_plan(5000), LINKS)

    assert len(said.encode()) < MOST_BYTES
    kept = len(set(re.findall(r"`default/large-\d+`", said)))
    assert f"{5000 - kept:,} more reasons left out" in said
    assert "5,000 more services left out" in said
    assert "5,000 more nodes left out" in said


def test_the_same_plan_is_the_same_bytes() -> None:
    assert plan_markdown(large_plan(70), LINKS) == plan_markdown(large_plan(70), LINKS)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a", "`a`"),
        ("a`b", "``a`b``"),
        ("`a", "`` `a ``"),
        ("<b>@all #1</b>", "`<b>@all #1</b>`"),
        ("a\nb", r"`a\nb`"),
    ],
)
def test_a_name_is_code_whatever_it_is(text: str, shown: str) -> None:
    assert code(text) == shown


def test_nothing_that_others_wrote_is_obeyed() -> None:
    plan = large_plan(1, HOSTILE)
    source = Location(f"{HOSTILE}.yaml", 1, "c" * 40)
    held = Blocked(ref(HOSTILE), HOSTILE, HOSTILE, source, f"node/{HOSTILE}", (ref(HOSTILE),))
    own, new = (replace(c, ref=ref(HOSTILE), source=source, message=HOSTILE) for c in plan.changes)
    state = TargetState(f"node/{HOSTILE}", reachable=True, message=HOSTILE)
    new = replace(new, target=state.target)
    plan = replace(plan, blocked=(held,), changes=(own, new), targets={"x": state, **plan.targets})
    wrong = Problem(HOSTILE, 1, 1, HOSTILE, Severity.ERROR, "Schema", HOSTILE)

    for said in (plan_markdown(plan, LINKS), as_markdown([wrong], Counts(1, 1, 0), LINKS)):
        tokens = [t for block in _RENDERER.parse(said) for t in (block, *(block.children or ()))]

        html = "".join(t.content for t in tokens if t.type in ("html_block", "html_inline"))
        assert set(re.findall(r"<(/?[^>&]+)>", html)) <= _TAGS
        texts = [t.content for t in tokens if t.type == "text"]
        assert not [text for text in texts if re.search(r"[@#]\w", text)]
        assert {t.type for t in tokens if t.type.endswith("_open")} <= _BLOCKS
        assert all(t.attrs["href"].startswith(PAGE) for t in tokens if t.type == "link_open")
        assert sum(t.type == "heading_open" for t in tokens) == len(re.findall("^#+ ", said, re.M))
        assert sum(t.type == "strong_open" for t in tokens) == 1


_RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_TAGS = {"details", "details open", "/details", "summary", "/summary", "code", "/code"}
_BLOCKS = {
    f"{name}_open"
    for name in ("heading", "paragraph", "strong", "bullet_list", "list_item", "link")
}


PROBLEMS = [
    Problem("a (b).yaml", 3, 5, "spec.modelRef", Severity.ERROR, "DanglingReference", "no `x`"),
    Problem("b.yaml", 1, 1, "", Severity.BLOCKED, "MemoryFits", "needs 9 GiB of 8 GiB"),
    Problem("c.yaml", 2, 1, "spec.router", Severity.WARNING, "FieldIgnored", "remove <it>"),
]


def test_problems_read_like_this() -> None:
    blob = f"{PAGE}/blob/{'d' * 40}"

    assert as_markdown(PROBLEMS, Counts(2, 3, 0), LINKS) == (
        "### Fleet check\n\n"
        "**not valid: 1 error, 1 blocked, 1 warning, 3 documents in 2 files.**\n\n"
        f"- [`a (b).yaml:3`]({blob}/a%20%28b%29.yaml#L3) `spec.modelRef`: no `x`"
        " (error DanglingReference)\n"
        f"- [`b.yaml:1`]({blob}/b.yaml#L1): needs 9 GiB of 8 GiB (blocked MemoryFits)\n\n"
        "<details><summary>Warnings and notes</summary>\n\n"
        f"- [`c.yaml:2`]({blob}/c.yaml#L2) `spec.router`: remove &lt;it&gt;"
        " (warning FieldIgnored)\n\n"
        "</details>\n"
    )


def test_many_problems_keep_their_counts_and_what_is_gravest() -> None:
    said = as_markdown([*PROBLEMS[2:] * 900, *PROBLEMS[:2]], Counts(2, 3, 0), LINKS)

    assert len(said.encode()) < MOST_BYTES
    assert "**not valid: 1 error, 1 blocked, 900 warnings, " in said
    assert "DanglingReference" in said
    assert "MemoryFits" in said
