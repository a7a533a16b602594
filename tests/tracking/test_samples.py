"""The choice of trajectories and their rows."""

from collections import Counter

import pytest

from tests.records.builders import SOLVED, png, step, trajectory
from tests.tracking.conftest import happened
from webgym_cli.errors import StoreError
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.tracking.worker import COLUMNS, build_table_row, choose_trajectories


@pytest.fixture
def store(run):
    return ScreenshotStore(run.screenshots)


def test_the_choice_is_bounded_mixed_and_the_seeds(run):
    happened(run, 0)
    happened(run, 1)
    chosen = choose_trajectories(run, "train", 1, 6, seed=3)
    assert {(episode.split, episode.iteration) for episode in chosen} == {("train", 1)}
    outcomes = Counter(item.outcome.failure or item.outcome.reward for item in chosen)
    assert outcomes == {1.0: 2, 0.0: 2, "browser_crashed": 2}
    assert choose_trajectories(run, "train", 1, 6, seed=3) == chosen
    assert any(choose_trajectories(run, "train", 1, 6, seed=seed) != chosen for seed in range(4, 9))
    assert len(choose_trajectories(run, "train", 1, 100, seed=3)) == 12


def test_a_row_shows_first_middle_and_last_step(store):
    cells = dict(
        zip(
            COLUMNS,
            build_table_row(trajectory(4, steps=5), store, lambda image, caption: (image.size, caption)),
            strict=True,
        )
    )
    assert (cells["outcome"], cells["reward"], cells["steps"], cells["failure"]) == ("solved", 1.0, 5, "")
    assert [cells[name] for name in ("first", "middle", "last")] == [
        ((40, 32), "step 0: click"),
        ((40, 32), "step 2: click"),
        ((40, 32), "step 4: click"),
    ]


def test_few_steps_and_lost_images_leave_cells_empty(store):
    lost = ScreenshotStore(store.root).png(step(1).observation.screenshot.sha256)
    lost.unlink()
    with pytest.raises(StoreError):
        store.get(lost.stem)
    cells = build_table_row(trajectory(0, steps=2, outcome=SOLVED), store, lambda image, caption: caption)[-3:]
    assert cells == ["step 0: click", None, None]
    store.png(step(0).observation.screenshot.sha256).write_bytes(png(9))
    assert build_table_row(trajectory(0, steps=1), store, lambda image, caption: caption)[-3:] == [None, None, None]
