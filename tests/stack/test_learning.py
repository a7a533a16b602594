"""That policy gradients teach: the recipe `sums` as it ships, from a weak imitation of a few worked examples."""

from threading import BoundedSemaphore

import pytest

from tests.records.builders import new_run
from tests.stack_fixtures import needs
from webgym_cli.config.load import load
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.loop import Loop
from webgym_cli.loop.loop_plan import plan_loop
from webgym_cli.records.task import Split
from webgym_cli.scoring import latex
from webgym_cli.store.buffer import scan
from webgym_cli.store.checkpoints import checkpoints
from webgym_cli.store.metrics import read_events
from webgym_cli.store.run import new_attempt

pytestmark = pytest.mark.stack
UPDATES = 4


@pytest.mark.timeout(1800)
async def test_success_on_questions_held_out_rises_by_a_fifth(tiny_model_dir, tmp_path, monkeypatch):
    needs("train")
    needs("serve")
    monkeypatch.setattr(latex._COMPARER, "_slots", BoundedSemaphore())  # four processes would each import sympy
    # the random weights are not evaluated, nor each question four times: that takes as long as two updates
    saved = ["loop.val_before_train=false", "rollout.test_repeats=2"]
    settings = load(["sums"], [f"policy_config.base_model={tiny_model_dir}", *saved])
    run = new_run(tmp_path / "run", settings)
    events = []
    async with StageContext(run, settings, new_attempt(run), events.append) as context:
        await Loop(plan_loop(run, settings, iterations=1), context).execute()
        # the versions between are not evaluated, and three of the recipe's seven updates are left out
        plan = plan_loop(run, settings, iterations=1 + UPDATES, eval_every=1 + UPDATES)
        evaluations = await Loop(plan, context).execute()
    rates = {event["iteration"]: event["success_rate"] for event in evaluations}
    assert 0.0 < rates[1] < 0.7, "imitation alone is no weak baseline"
    assert rates[max(rates)] - rates[1] >= 0.2, rates
    known = {}
    for trajectory in scan(run, Split.TRAIN, UPDATES):
        for step in trajectory.steps:
            by = step.generation.policy_version
            known.setdefault(by.number, set()).add(by.digest)
    assert {number: len(digests) for number, digests in known.items()} == {UPDATES: 1}
    result = checkpoints(run)
    assert [one.algorithm for one in result] == ["sft"] + ["grpo"] * UPDATES
    assert [one.parent for one in result[1:]] == [one.name for one in result[:-1]]
    modes = [event["mode"] for event in events if event["event"] == "train_start"]
    assert modes == ["fresh", "fresh"] + ["carried"] * (UPDATES - 1)
    trained = [event["metrics"] for event in read_events(run, "train")][1:]
    assert [metrics["training/global_step"] for metrics in trained] == [*map(float, range(1, 1 + UPDATES))]
    names = {"actor/pg_loss", "actor/grad_norm", "critic/score/mean", "timing_s/step"}
    assert all(names <= each.keys() for each in trained)
    assert {metrics["staleness/max"] for metrics in trained} == {0.0}
    assert min(metrics["actor/rows_with_gradient"] for metrics in trained) >= 0.95
