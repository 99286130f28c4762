"""The score of a node: the formula, its bounds, and what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.placement.score import HIGHEST, Merits, ScoreWeights, scores

_FIGURES = st.none() | st.floats(0, 1e6)
_NODES = st.lists(st.builds(Merits, _FIGURES, st.none() | st.floats(0, 1), _FIGURES), max_size=12)
_WEIGHT = st.floats(0.01, 100)
_WEIGHTS = st.builds(ScoreWeights, _WEIGHT, _WEIGHT, _WEIGHT)


def test_the_formula_is_the_one_that_was_asked_for() -> None:
    fast_busy_dear = Merits(200.0, 1.0, 4.0)
    half_idle_cheap = Merits(100.0, 0.0, 1.0)

    # 0.7 - 0.2 - 0.1 = 0.4 and 0.35 - 0 - 0.025 = 0.325, of -0.3 to 0.7
    assert scores([fast_busy_dear, half_idle_cheap], ScoreWeights()) == [7, 6]


def test_other_weights_choose_another_node() -> None:
    nodes = [Merits(200.0, 0.0, 4.0), Merits(100.0, 0.0, 1.0)]

    assert scores(nodes, ScoreWeights(1, 0, 0)) == [10, 5]
    assert scores(nodes, ScoreWeights(0, 0, 1)) == [0, 8]
    assert scores(nodes, ScoreWeights(4, 0, 0)) == [10, 5]  # only their shares count


@given(_NODES, _WEIGHTS)
def test_a_score_is_whole_and_from_0_to_10(nodes: list[Merits], weights: ScoreWeights) -> None:
    found = scores(nodes, weights)

    assert len(found) == len(nodes)
    assert all(isinstance(score, int) and 0 <= score <= HIGHEST for score in found)


@given(_NODES, _WEIGHTS, st.randoms())
def test_neither_order_nor_units_matter(
    nodes: list[Merits], weights: ScoreWeights, random: object
) -> None:
    shuffled = list(range(len(nodes)))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    in_cents = [replace(n, cost=None if n.cost is None else n.cost * 128) for n in nodes]

    before = scores(nodes, weights)

    assert [before[i] for i in shuffled] == scores([nodes[i] for i in shuffled], weights)
    assert scores(in_cents, weights) == before


@given(_NODES.filter(len), _WEIGHTS, st.floats(0, 1e6))
def test_a_faster_idler_or_cheaper_node_is_never_worse(
    nodes: list[Merits], weights: ScoreWeights, more: float
) -> None:
    first = replace(nodes[0], tokens_per_second=nodes[0].tokens_per_second or 0.0)
    faster = replace(first, tokens_per_second=(first.tokens_per_second or 0.0) + more)
    busier = replace(first, utilisation=1.0)
    dearer = replace(first, cost=(first.cost or 0.0) + more)
    known = [first if first.utilisation is not None and first.cost is not None else Merits(1, 0, 0)]
    rest = nodes[1:]

    assert scores([faster, *rest], weights)[0] >= scores([first, *rest], weights)[0]
    if known[0] is first:
        assert scores([busier, *rest], weights)[0] <= scores([first, *rest], weights)[0]
        assert scores([dearer, *rest], weights)[0] <= scores([first, *rest], weights)[0]


def test_an_unknown_speed_is_neither_the_best_nor_the_worst() -> None:
    fast, unknown, slow = scores([Merits(200.0), Merits(), Merits(20.0)], ScoreWeights())

    assert fast > unknown > slow


def test_nodes_of_which_nothing_is_known_are_equal() -> None:
    assert len(set(scores([Merits()] * 5, ScoreWeights()))) == 1


def test_zero_is_a_figure_and_not_unknown() -> None:
    """Nodes that cost nothing, beside those whose cost nobody has stated."""
    free, unknown, dear = scores(
        [Merits(cost=0.0), Merits(), Merits(cost=2.0)], ScoreWeights(0, 0, 1)
    )

    assert free > unknown > dear


def test_weights_are_read_as_they_are_written() -> None:
    assert ScoreWeights.read("tps=0.7,util=0.2,cost=0.1") == ScoreWeights()
    assert ScoreWeights.read(" cost=1, tps=2 ,util=0") == ScoreWeights(2, 0, 1)
    assert ScoreWeights.read("cost=1000000,tps=0,util=0") == ScoreWeights(0, 0, 1e6)
    assert str(ScoreWeights()) == "tps=0.7,util=0.2,cost=0.1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tps=-1,util=0.2,cost=0.1", "0 or more"),
        ("tps=0,util=0,cost=0", "all are 0"),
        ("tps=1000000.5,util=0,cost=0", "0 or more"),
        ("tps=nan,util=0.2,cost=0.1", "0 or more"),
        ("tps=inf,util=0.2,cost=0.1", "0 or more"),
        ("tps=much,util=0.2,cost=0.1", "give a number"),
        ("tps=1", "util and cost is missing"),
        ("tps=1,tps=1,util=1,cost=1", "once"),
        ("speed=1,util=1,cost=1", "tps, util, cost"),
        ("", "such as tps=0.7"),
    ],
)
def test_weights_that_make_no_sense_are_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ScoreWeights.read(text)
