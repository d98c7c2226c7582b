"""How figures are judged and shown."""

from __future__ import annotations

import pytest

from benchmarks.figures import Figure, table


@pytest.mark.parametrize(
    ("values", "target", "verdict"),
    [
        ((1.0, 2.0, 3.0), 3.0, "pass"),
        ((1.0, 2.0, 3.0), 2.5, "p95 over"),
        ((1.0, 2.0, 3.0), 1.5, "OVER"),
        ((1.0, 2.0, 3.0), None, ""),
    ],
)
def test_a_figure_is_judged_by_its_median_and_its_95th_percentile(values, target, verdict) -> None:
    assert Figure("x", "ms", values, target).verdict == verdict


def test_the_95th_percentile_of_many_values_leaves_one_in_twenty_above_it() -> None:
    figure = Figure("x", "ms", tuple(float(n) for n in range(100)))
    assert sum(value > figure.p95 for value in figure.values) == 5


def test_of_few_values_the_largest_is_shown() -> None:
    assert Figure("x", "ms", (1.0, 9.0, 2.0)).p95 == 9.0


def test_the_table_has_a_row_for_each_figure_with_its_target_and_verdict() -> None:
    head, late, small = table(
        [Figure("late", "ms", (560.0, 600.0), 500.0), Figure("small", "MB", (0.123,))]
    ).splitlines()
    assert head.split() == ["n", "median", "p95", "unit", "target"]
    assert late.split() == ["late", "2", "580", "600", "ms", "<=", "500", "OVER"]
    assert small.split() == ["small", "1", "0.12", "MB"]
