"""Which stages a loop goes through, in which order, and what ends it. The stages themselves are told what to do."""

from contextlib import nullcontext

import pytest

from tests.records.builders import new_run, published, trajectory
from webgym_cli.config.load import load
from webgym_cli.errors import BelowThresholdError, JobError, UsageError
from webgym_cli.loop.loop import Loop
from webgym_cli.loop.loop_plan import Phase, plan_loop
from webgym_cli.loop.rollout_setup import plan_current_rollout
from webgym_cli.records.dataset import Prepared
from webgym_cli.records.task import Split
from webgym_cli.rollout.plan import write_plan
from webgym_cli.store.buffer import append
from webgym_cli.store.checkpoints import version
from webgym_cli.store.metrics import append_event, read_events
from webgym_cli.store.run import RunDir
from webgym_cli.train.working_dir import partial_folder
from webgym_cli.util.files import write_json


class Stages:
    """A context whose stages note their call; a training makes the next version, unless it is told to fail."""

    def __init__(self, run, settings, rates=(), fail=()):
        self.run, self.settings = run, settings
        self.stops = 0
        self.calls, self.shown = [], []
        self._rates, self._fail = dict(enumerate(rates)), list(fail)

    def sink(self, event):
        self.shown.append(event)

    def record(self, event, message=""):
        append_event(self.run, event)

    async def stop_servers(self):
        self.stops += 1

    async def rollout(self, split, policy, episodes=None):
        number = version(self.run)
        self.calls.append((split.value, number, policy, episodes))
        self._fails(f"{split}-{number}")
        known = {"success_rate": self._rates.get(number, 0.0), "episodes": 1, "interval": [0.0, 1.0]}
        return {"event": "rollout", "iteration": number, **known}

    async def prepare(self):
        self.calls.append(("prepare", version(self.run)))
        self._fails("prepare")

    async def train(self):
        number = version(self.run)
        self.calls.append(("train", number))
        self._fails("train")
        published(self.run, self.settings, number + 1)

    def _fails(self, stage):
        if self._fail and self._fail[0] == stage:
            self._fail.pop(0)
            raise JobError(f"{stage} broke")


SETTINGS = ["rollout.episodes=8", "loop.demonstration_iterations=1", "loop.demonstration_episodes=4"]


@pytest.fixture
def run(tmp_path, told_stages):
    return new_run(tmp_path / "run", load(["demo"], SETTINGS))


async def ran(run, *, rates=(), fail=(), **options):
    """Run a loop over told stages and return them and its failures."""
    settings = load(["demo"], SETTINGS)
    stages = Stages(run, settings, rates, fail)
    loop = Loop(plan_loop(run, settings, **options), stages)
    evaluations = await loop.execute()
    return stages, loop.failures, evaluations


async def test_an_iteration_is_evaluate_collect_prepare_train_and_run_again_it_only_does_what_is_missing(run):
    stages, failures, evaluations = await ran(run, iterations=2)
    first = [("test", 0, "vllm", None), ("train", 0, "oracle", 4), ("prepare", 0), ("train", 0)]
    second = [("test", 1, "vllm", None), ("train", 1, "vllm", 8), ("prepare", 1), ("train", 1)]
    assert stages.calls == [*first, *second, ("test", 2, "vllm", None)]
    assert [event["iteration"] for event in evaluations] == [0, 1, 2]
    assert failures == []
    assert (await ran(run, iterations=2))[0].calls == []
    later = [call[:2] for call in (await ran(run, iterations=3))[0].calls]
    assert later == [("train", 2), ("prepare", 2), ("train", 2), ("test", 3)]


@pytest.mark.parametrize(
    ("planned", "options", "collects"), [(4, {}, False), (3, {}, True), (4, {"phase": Phase.ROLLOUT}, True)]
)
async def test_an_interrupted_training_goes_on_with_the_episodes_that_it_has(run, planned, options, collects):
    """Another attempt of a failed one would change its data, and the training would start over."""
    write_plan(run, plan_current_rollout(run, load(["demo"], SETTINGS), Split.TRAIN, "oracle", planned))
    of_data = {"train_samples": 1, "val_samples": 0, "data_digest": "d", "created_at": "now"}
    record = Prepared(iteration=0, model_name="model_1", parent="m", **of_data)
    write_json(run.dataset / "prepared.json", record.model_dump(mode="json"))
    partial_folder(run, "model_1").mkdir(parents=True)
    stages, _, _ = await ran(run, iterations=1, eval_every=0, **options)
    assert (("train", 0, "oracle", 4) in stages.calls) is collects


@pytest.mark.parametrize(
    ("every", "evaluated"), [(0, []), (1, [0, 1, 2, 3, 4, 5]), (2, [0, 2, 4, 5]), (3, [0, 3, 5]), (9, [0, 5])]
)
async def test_every_nth_policy_and_the_last_are_evaluated(run, every, evaluated):
    _, _, evaluations = await ran(run, iterations=5, eval_every=every)
    assert [event["iteration"] for event in evaluations] == evaluated


def test_the_untrained_model_can_be_left_out(run):
    settings = load(overrides=["loop.val_before_train=false"])
    assert plan_loop(run, settings, iterations=4, eval_every=2).evaluations == (2, 4)


async def test_both_phases_in_turn_are_a_loop(run):
    stages, _, _ = await ran(run, phase=Phase.ROLLOUT, iterations=3)
    assert stages.calls == [("test", 0, "vllm", None), ("train", 0, "oracle", 4)]
    assert version(run) == 0
    stages, _, _ = await ran(run, phase=Phase.UPDATE, iterations=3)
    assert stages.calls == [("prepare", 0), ("train", 0)]
    assert version(run) == 1
    for phase in (Phase.ROLLOUT, Phase.UPDATE, Phase.ROLLOUT):
        await ran(run, phase=phase, iterations=2)
    assert version(run) == 2
    assert [event["iteration"] for event in read_events(run, "evaluation")] == [0, 1, 2]
    assert (await ran(run, phase=Phase.UPDATE, iterations=2))[0].calls == []


async def test_an_evaluation_that_is_good_enough_ends_it_and_a_last_one_below_the_threshold_is_code_5(run):
    stages, _, evaluations = await ran(run, iterations=5, rates=(0.1, 0.6, 0.9), until=0.5)
    assert [event["success_rate"] for event in evaluations] == [0.1, 0.6]
    assert stages.calls[-1] == ("test", 1, "vllm", None)
    with pytest.raises(BelowThresholdError, match=r"0\.3 is below --min-success 0\.5"):
        await ran(run, iterations=2, rates=(0.9, 0.6, 0.3), min_success=0.5)
    assert version(run) == 2


@pytest.mark.parametrize("options", [{"eval_every": 0}, {"phase": Phase.UPDATE}])
@pytest.mark.parametrize("threshold", ["until", "min_success"])
async def test_a_threshold_without_evaluations_is_wrong_usage(run, options, threshold):
    with pytest.raises(UsageError, match="this loop makes none"):
        await ran(run, iterations=1, **{threshold: 0.5}, **options)


@pytest.mark.parametrize("stage", ["test-0", "train-0", "prepare", "train"])
async def test_a_stage_that_fails_ends_it_and_the_next_run_takes_it_up(run, stage):
    with pytest.raises(JobError, match="broke"):
        await ran(run, iterations=1, fail=[stage])
    assert version(run) == 0
    stages, _, _ = await ran(run, iterations=1)
    assert version(run) == 1
    assert (("test", 0, "vllm", None) in stages.calls) == (stage == "test-0")


async def test_going_on_after_a_failed_training_collects_as_much_again(run):
    settings = load(["demo"], SETTINGS)
    stages = Stages(run, settings, fail=["train", "train"])
    loop = Loop(plan_loop(run, settings, iterations=4, keep_going=True, eval_every=0), stages)
    with pytest.raises(JobError):  # four rounds, two trainings
        await loop.execute()
    assert version(run) == 2
    shown = [call for call in stages.calls if len(call) == 4]
    assert shown == [("train", 0, "oracle", count) for count in (4, 8, 12)] + [("train", 1, "vllm", 8)]
    assert [(lost["stage"], lost["iteration"], lost["code"]) for lost in loop.failures] == [("update", 0, 4)] * 2
    assert (stages.shown, stages.stops) == (loop.failures, 2)


async def test_going_on_ends_with_the_last_error_if_the_run_did_not_get_there_else_past_it(run):
    with pytest.raises(JobError, match="train broke"):
        await ran(run, iterations=2, fail=["train"], keep_going=True)
    assert version(run) == 1
    _, failures, evaluations = await ran(run, iterations=3, fail=["test-2"], keep_going=True)
    assert [lost["stage"] for lost in failures] == ["evaluation"]
    assert [event["iteration"] for event in evaluations] == [0, 1, 3]


async def test_wrong_settings_are_never_gone_past(run):
    class Wrong(Stages):
        async def prepare(self):
            raise UsageError("no such thing")

    settings = load(["demo"], SETTINGS)
    with pytest.raises(UsageError):
        await Loop(plan_loop(run, settings, iterations=2, keep_going=True), Wrong(run, settings)).execute()


async def test_imported_demonstrations_are_imitated_and_no_expert_acts(run):
    append(run, trajectory(0))
    stages, _, _ = await ran(run, iterations=2, eval_every=0)
    assert stages.calls == [("prepare", 0), ("train", 0), ("train", 1, "vllm", 8), ("prepare", 1), ("train", 1)]


async def test_what_is_imported_later_stands_in_for_no_episode_of_the_policy(run):
    append(run, trajectory(0, iteration=1))
    stages, _, _ = await ran(run, iterations=2, eval_every=0)
    assert [call for call in stages.calls if len(call) == 4] == [("train", 0, "oracle", 4), ("train", 1, "vllm", 8)]


@pytest.mark.parametrize("wrong", ["tasks.train=nowhere.jsonl", "rollout.policy=nobody"])
def test_a_plan_finds_wrong_tasks_and_policies(run, wrong):
    with pytest.raises(UsageError):
        plan_loop(run, load(["demo"], [wrong]))


@pytest.mark.parametrize(
    ("demonstrations", "first", "algorithm", "refused"),
    [
        *((0, "sft", "sft", True), (1, "sft", "grpo", True), (0, "sft", "grpo", False)),
        *((1, "grpo", "sft", True), (2, "grpo", "sft", False)),
    ],
)
def test_a_plan_refuses_a_path_that_one_of_its_trainers_reads_as_a_pattern(
    tmp_path, demonstrations, first, algorithm, refused
):
    run, given = RunDir(tmp_path / "lr[1]"), (f"loop.demonstration_iterations={demonstrations}", "loop.iterations=2")
    settings = load(["demo"], [*given, f"loop.demonstration_algorithm={first}", f"train.algorithm={algorithm}"])
    assert plan_loop(run, settings, phase=Phase.ROLLOUT).trainings == 0
    with pytest.raises(UsageError, match="pattern of files") if refused else nullcontext():
        plan_loop(run, settings)
