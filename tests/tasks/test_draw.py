from itertools import islice

import pytest

from tests.tables import each
from tests.tasks.lines import webgym, write
from webgym_cli.errors import SettingsError
from webgym_cli.records.task import DifficultyBand
from webgym_cli.tasks.draw import SEEDS, TaskSampler, largest_remainder, sample_tasks
from webgym_cli.tasks.source import open_tasks

EASY, MEDIUM, HARD = DifficultyBand
RATIO = {EASY: 2.0, MEDIUM: 5.0, HARD: 3.0}


@pytest.fixture
def tasks(tmp_path):
    """Twelve easy tasks, six medium, three hard ones; each on a site of its own."""
    levels = [1] * 12 + [5] * 6 + [9] * 3
    return open_tasks(
        str(write(tmp_path / "t", *(webgym(number, difficulty=level) for number, level in enumerate(levels))))
    )


@each(
    ("weights", "count", "shares"),
    [
        ((2, 5, 3), 10, (2, 5, 3)),
        ((2, 5, 3), 0, (0, 0, 0)),
        ((2, 5, 3), 1, (0, 1, 0)),
        ((2, 5, 3), 1024, (205, 512, 307)),  # 204.8, 512, 307.2
        ((2, 5, 3), 7, (1, 4, 2)),  # 1.4, 3.5, 2.1: one is left, to the 0.5
        ((1, 1, 1), 10, (4, 3, 3)),  # all 0.33: the easiest first
        ((1, 1, 1), 11, (4, 4, 3)),
        ((1, 1, 2), 2, (1, 0, 1)),  # 0.5, 0.5, 1: a tie
        ((1, 3, 0), 2, (1, 1, 0)),  # 0.5, 1.5: a tie
        ((0, 1, 1), 1, (0, 1, 0)),
        ((0, 0, 4), 5, (0, 0, 5)),
        ((0.1, 0.2, 0.7), 10, (1, 2, 7)),  # in binary 0.1 + 0.2 + 0.7 is not 1
        ((0.1, 0.3, 0.3), 1, (0, 1, 0)),
        ((1e-9, 1, 1), 3, (0, 2, 1)),
    ],
)
def test_shares_by_largest_remainder(weights, count, shares):
    assert largest_remainder(dict(zip(DifficultyBand, weights, strict=True)), count) == dict(
        zip(DifficultyBand, shares, strict=True)
    )


def test_the_order_in_which_weights_stand_decides_nothing_and_those_that_divide_nothing_are_refused():
    assert largest_remainder({HARD: 1, EASY: 1}, 3) == {EASY: 2, HARD: 1}
    for weights in ({}, {EASY: 0}, {EASY: 2, HARD: -1}):
        with pytest.raises(SettingsError):
            largest_remainder(weights, 3)


@pytest.mark.parametrize("which", [None, *DifficultyBand], ids=str)
def test_a_stream_has_positions_and_rounds(tasks, which):
    members = set(range(21)) if which is None else set(tasks.indices(which))
    size = len(members)
    elements = list(islice(TaskSampler(tasks, "x", RATIO).stream(which), 3 * size))
    assert [element.position for element in elements] == list(range(3 * size))
    for start in (0, size, 2 * size):
        assert {element.index for element in elements[start : start + size]} == members
    assert all(0 <= element.seed < SEEDS for element in elements)


def test_the_greedy_one_comes_last_on_the_first_seed_and_changes_no_other(tasks):
    plain = list(islice(TaskSampler(tasks, "x", RATIO, 2).stream(HARD), 12))
    elements = list(islice(TaskSampler(tasks, "x", RATIO, 2, greedy=True).stream(HARD), 18))
    assert [element.position for element in elements] == list(range(18))
    assert [element.greedy for element in elements] == [False, False, True] * 6
    sampled = [(element.index, element.seed) for element in elements if not element.greedy]
    assert sampled == [(element.index, element.seed) for element in plain]
    greedy = [(element.index, element.seed) for element in elements if element.greedy]
    assert greedy == sampled[::2]


def test_elements_can_be_asked_for_by_their_position(tasks):
    sampler = TaskSampler(tasks, "x", RATIO)
    elements = list(islice(sampler.stream(MEDIUM), 20))
    assert list(sampler.at(MEDIUM, [17, 3])) == [elements[3], elements[17]]
    assert list(sampler.at(MEDIUM, [])) == []


def test_a_draw_starts_where_it_is_told_and_passes_over_what_is_hidden(tasks):
    sampler = TaskSampler(tasks, "x")
    elements = list(islice(sampler.stream(None), 60))
    hidden = {elements[5].index, elements[7].index}
    expected = [element for element in elements[4:] if element.index not in hidden]
    assert sampler.draw(30, start={None: 4}, hidden=hidden) == expected[:30]


def test_a_ratio_draw_completes_what_there_is(tasks):
    drawn = TaskSampler(tasks, "x", RATIO).draw(4, have={EASY: 5, MEDIUM: 1})
    bands = [tasks.band(element.index) for element in drawn]
    # 10 in all are 2, 5, 3: none is easy, 4 medium and 3 hard are owed, of which 4 are 2.29 and 1.71
    assert sorted(bands) == sorted([MEDIUM] * 2 + [HARD] * 2)


def test_bands_without_tasks_are_named(tasks):
    hidden = frozenset(tasks.indices(HARD))
    assert TaskSampler(tasks, "x", RATIO).bands_without_tasks(hidden) == [HARD]
    assert TaskSampler(tasks, "x", {EASY: 1, HARD: 0}).bands_without_tasks(hidden) == []
    assert TaskSampler(tasks, "x").bands_without_tasks(hidden) == []


def test_a_sample_has_no_task_twice_and_by_ratio_no_more_than_a_band_has(tasks):
    assert sorted(sample_tasks(tasks, 100, seed=3).indices) == list(range(21))
    sample = sample_tasks(tasks, 10, seed=3)
    assert len(sample.indices) == 10 and sample == sample_tasks(tasks, 10, seed=3) != sample_tasks(tasks, 10, seed=4)
    sample = sample_tasks(tasks, 20, ratio=RATIO)  # 4, 10 and 6 are wanted
    assert sorted(tasks.band(index) for index in sample.indices) == sorted([EASY] * 4 + [MEDIUM] * 6 + [HARD] * 3)
