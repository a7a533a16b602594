import json
import math
import unittest

import torch
from tiny import scratch, some_rows, write_batch

from webgym_cli.trainer.data import read_batch
from webgym_cli.trainer.options import AlgorithmConfig, TrainingError
from webgym_cli.trainer.ppo.batch_targets import compute_targets

check = unittest.TestCase()


def batch(place, **more):
    given = {"rewards": [1.0, None, 0.5, 0.0], "groups": [7, 7, 9, 9], **more}
    return write_batch(place / "data", some_rows(4), **given)


def test_rows_of_failed_and_greedy_episodes_are_not_trained():
    with scratch() as place:
        result = read_batch(batch(place, greedy={2}))
        assert [row.trajectory for row in result.rows] == [0, 3]
        reward = result.trajectories.reward
        assert reward[0] == 1 and reward[1].isnan() and reward[2].isnan() and reward[3] == 0
        assert result.trajectories.failed == 1
        assert [None if math.isnan(x) else x for x in result.trajectories.baseline.tolist()] == [None, None, 0.5, 0.5]
        result = read_batch(batch(place, greedy={2}), with_baseline=True)
        assert [row.trajectory for row in result.rows] == [3]


def test_a_success_is_what_the_batch_calls_one():
    with scratch() as place:
        folder = batch(place)
        assert read_batch(folder).trajectories.success.tolist() == [True, False, False, False]
        path = folder / "trajectories.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[2]["success"] = True  # a threshold of 0.5
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert read_batch(folder).trajectories.success.tolist() == [True, False, True, False]


def test_tokens_are_in_the_order_of_trajectory_and_step():
    with scratch() as place:
        rows = some_rows(4)
        for row, (number, step) in zip(rows, [(1, 4), (0, 0), (1, 2), (0, 9)], strict=True):
            row |= {"number": number, "step": step}
        result = read_batch(write_batch(place / "data", rows, rewards=[1.0, 0.0], groups=[0, 0]))
        assert [(row.trajectory, row.step) for row in result.rows] == [(0, 0), (0, 9), (1, 2), (1, 4)]
        counts = [sum(rows[place]["mask"]) for place in (1, 3, 2, 0)]
        assert result.offsets.tolist() == [0, *torch.tensor(counts).cumsum(0).tolist()]
        assert len(result.rollout_log_probs) == sum(counts)
        experience = result.tokens()
        assert experience.row.tolist() == [row for row, count in enumerate(counts) for _ in range(count)]
        assert experience.trajectory.tolist() == [0] * sum(counts[:2]) + [1] * sum(counts[2:])
        assert experience.last.nonzero()[:, 0].tolist() == [sum(counts[:2]) - 1, sum(counts) - 1]


def test_what_contradicts_itself_is_refused_with_its_line():
    cases = [
        ({"mask": [0] * 9}, "line 2: .* marks in the mask"),
        ({"logprobs": [-1.0]}, "line 2: 1 log-probs for"),
        ({"logprobs": None}, "line 2: not a sequence"),
        ({"number": 8}, "line 2: trajectory 8 is not in trajectories.jsonl"),
        ({"images": ["x.png"]}, "line 2: 1 pictures, 0 sizes"),
    ]
    for change, wanted in cases:
        with scratch() as place:
            folder = batch(place)
            lines = (folder / "rows.jsonl").read_text().splitlines()
            lines[1] = json.dumps(json.loads(lines[1]) | change)
            (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
            with check.assertRaisesRegex(TrainingError, wanted):
                read_batch(folder)


def test_first_tokens_numbers_that_are_none_and_other_data_than_was_named_are_refused():
    with scratch() as place:
        folder = batch(place)
        text = (folder / "rows.jsonl").read_text()
        value = json.loads(text.splitlines()[0])
        for change, wanted in (
            ({"mask": [1, 0, 0, 0, *value["mask"][4:]], "logprobs": value["logprobs"]}, "first token|log-probs"),
            ({"logprobs": [math.nan] * len(value["logprobs"])}, "a log-prob is not finite"),
        ):
            (folder / "rows.jsonl").write_text(json.dumps(value | change) + "\n")
            with check.assertRaisesRegex(TrainingError, wanted):
                read_batch(folder)
        (folder / "rows.jsonl").write_text(text.replace("t0", "t9"))
        with check.assertRaisesRegex(TrainingError, "SHA-256 differs"):
            read_batch(folder)


def test_episodes_that_do_not_fit_together():
    with scratch() as place:
        folder = batch(place)
        lines = (folder / "trajectories.jsonl").read_text().splitlines()
        for text, wanted in (
            ([lines[0], lines[0]], "line 2: trajectory 0 has an infinite reward, or is there twice"),
            (lines[1:], "numbers must be from 0 to 2"),
            (["{}"], "line 1: not a trajectory"),
            (["oops"], "is no JSON Lines"),
        ):
            (folder / "trajectories.jsonl").write_text("\n".join(text) + "\n")
            with check.assertRaisesRegex(TrainingError, wanted):
                read_batch(folder)
    with scratch() as place, check.assertRaisesRegex(TrainingError, "nothing to learn from"):
        read_batch(batch(place, rewards=[None] * 4))


def test_what_was_sampled_from():
    with scratch() as place:
        folder = batch(place)
        head = json.loads((folder / "rl.json").read_text())
        head["sampling"] = {"temperature": 0.7, "top_k": -1, "top_p": 0.9, "min_p": None}
        (folder / "rl.json").write_text(json.dumps(head))
        result = read_batch(folder)
        assert (result.sampling.temperature, result.sampling.top_k, result.sampling.top_p) == (0.7, -1, 0.9)
        refused = ({"top_p": 1}, {"temperature": 1, "top_p": 0}, {"temperature": 1, "min_p": 2}, None, 3)
        for sampling, wanted in (({"temperature": 0}, "temperature 0"), *((one, "sampling: ") for one in refused)):
            (folder / "rl.json").write_text(json.dumps(head | {"sampling": sampling}))
            with check.assertRaisesRegex(TrainingError, wanted):
                read_batch(folder)
        (folder / "rl.json").write_text(json.dumps(head | {"schema": 2}))
        with check.assertRaisesRegex(TrainingError, "schema 2"):
            read_batch(folder)


def test_the_staleness_of_rows_is_measured():
    """Versions 1 and 3 in the batch of iteration 3: two trainings behind, and none; one row does not know."""
    rows = [
        {"input_ids": [1, 2], "mask": [0, 1], "number": number, "step": 0, "version": version}
        for number, version in enumerate([1, 3, None])
    ]
    with scratch() as place:
        batch = read_batch(write_batch(place, rows, rewards=[1.0, 0.0, 1.0], groups=[0, 0, 0], iteration=3))
        batch_targets = compute_targets(batch, AlgorithmConfig(), batch.rollout_log_probs, reference=None, values=None)
    assert (batch_targets.metrics["staleness/mean"], batch_targets.metrics["staleness/max"]) == (1.0, 2.0)
    assert batch_targets.metrics["actor/rows_with_gradient"] == 1.0
