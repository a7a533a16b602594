"""The loop's own duties, without the stages."""

import shutil

import pytest

from tests.agent.policy_host import Host
from tests.executable import Command, failures, finished, stored
from tests.loop import dial_vllm
from tests.loop.async_runs import AsyncRun
from tests.records.builders import published
from tests.serve.fakes import fake_python
from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError
from webgym_cli.loop import rollouts
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.rollout_setup import plan_current_rollout, select_evaluated
from webgym_cli.records.series import ORACLE, VLLM
from webgym_cli.records.task import Split
from webgym_cli.store.metrics import read_events
from webgym_cli.store.run import RunDir, create_or_open
from webgym_cli.util.files import write_json


@pytest.fixture
def trained(tmp_path):
    """A run that was killed between publishing its checkpoint and noting it."""
    run, settings = RunDir(tmp_path / "run"), Settings()
    create_or_open(run, settings)
    published(run, settings, name="model_20250115_143022", steps=3)
    return run, settings


async def test_a_training_that_a_crash_left_unnoted_is_noted_once(trained):
    run, settings = trained
    seen = []
    for _ in range(2):
        async with StageContext(run, settings, run.logs, seen.append):
            pass
    assert [event["name"] for event in list(read_events(run, "train"))] == ["model_20250115_143022"]
    assert [event["event"] for event in seen] == ["train"]
    run.model(settings).unlink()  # a lost link is mended
    async with StageContext(run, settings, run.logs, lambda event: None):
        assert run.model(settings).resolve() == (run.checkpoints / "model_20250115_143022").resolve()


def test_an_older_version_is_evaluated_in_its_own_iteration(trained):
    run, settings = trained
    for number, name in enumerate((settings.policy_config.base_model, "model_20250115_143022")):
        selected = select_evaluated(run, number, Split.TEST, VLLM)
        plan = plan_current_rollout(selected, settings, Split.TEST, VLLM, 2)
        assert (plan.iteration, plan.policy_name) == (number, name)


@pytest.mark.parametrize(("split", "policy"), [(Split.TRAIN, VLLM), (Split.TEST, ORACLE), (Split.TEST, "http://h/v1")])
def test_only_weights_of_the_run_are_evaluated_as_an_older_version(trained, split, policy):
    with pytest.raises(UsageError, match="--version") as caught:
        select_evaluated(trained[0], 0, split, policy)
    assert "--split test --policy vllm --version 0" in caught.value.hint


@pytest.mark.browser
async def test_policy_servers_share_a_rollout_and_the_one_that_is_down_is_named(tmp_path):
    run, settings = RunDir(tmp_path / "run"), load(["demo"], ["rollout.train_max_steps.easy=2"])
    create_or_open(run, settings)
    up, down = Host(), Host()
    await up.start()
    await down.start()
    await down.stop()
    seen = []
    async with StageContext(run, settings, run.logs, seen.append) as context:
        summary = await rollouts.rollout(context, Split.TRAIN, f"{down.url}, {up.url}", 4)
    await up.stop()
    assert (summary["collected"], summary["failures"]) == (4, {})
    assert summary["servers"][up.url]["requests"] == up.answered == summary["steps"] == 8
    lost = summary["servers"][down.url]["requests"]
    assert 1 <= lost <= 4, "its breaker opens after three failures in a row; a fourth may be under way by then"
    (message,) = [event["message"] for event in seen if event["event"] == "rollout"]
    assert message.endswith(f"{down.url} failed {lost} of {lost} requests")


class Varied(Host):
    """Answers right or wrong as it is told, once a request."""

    def __init__(self, right):
        super().__init__()
        self.right = iter(right)
        self.pace = self._choose

    async def _choose(self):
        self.content = "yes" if next(self.right) else "no"


@pytest.mark.parametrize(
    ("right", "planned"),
    [
        ([1, 0, 1, 1, 0, 0, 1, 1, *[1, 0] * 3, 0, 0], 16),  # one group of four has gradient; three of the next four
        ([1] * 24, 24),  # never any: at most three times what was asked for
        ([1, 0] * 4, 8),
    ],
)
async def test_groups_of_equal_rewards_are_replaced_by_others(tmp_path, right, planned):
    own = (
        '@reward(name="says_yes")\ndef says_yes(final_response, **fields):\n    return float("yes" in final_response)\n'
    )
    (tmp_path / "mine.py").write_text(f"from webgym_cli.scoring import reward\n\n\n{own}")
    overrides = ["agent.num_chains=2", "rollout.episodes=8", "rollout.concurrency=1", "train.algorithm=grpo"]
    overrides += [f"agent.reward_name={tmp_path}/mine.py:says_yes", "rl.data.filter_groups.max_num_gen_batches=3"]
    run, settings = RunDir(tmp_path / "run"), load(["arithmetic"], overrides)
    create_or_open(run, settings)
    host = Varied(right)
    await host.start()
    try:
        for _ in range(2):  # again, as after a crash: nothing is left to do
            async with StageContext(run, settings, run.logs, lambda event: None) as context:
                summary = await rollouts.rollout(context, Split.TRAIN, host.url)
            assert (summary["episodes"], host.answered) == (planned, planned)
    finally:
        await host.stop()


def test_a_policy_server_that_dies_is_started_again_and_no_episode_is_lost(tmp_path, tiny_model_dir):
    """That vLLM's server dies with its engine: tests/stack/test_thinking_stays.py."""
    model, behaviour = shutil.copytree(tiny_model_dir, tmp_path / "model"), tmp_path / "behave.json"
    python, run = fake_python(tmp_path, dial_vllm.__file__), AsyncRun(tmp_path / "folder", "vllm", model)
    write_json(behaviour, {"dial": "hangs"})  # the rollout can't end before the kill
    serving = ("venvs.device=cpu", f"venvs.serve={python}", "serve.port=0", "rollout.episodes=14")
    command = Command(run.folder, *run.words("rollout", *serving), DIAL_PAUSE="0.2")
    command.until(lambda: stored(run.root).count(b"\n") >= 4)
    before = stored(run.root)
    (server,) = [child for child in command.tree() if child.cmdline()[1:2] == [dial_vllm.__file__]]
    server.kill()
    behaviour.unlink()
    assert command.finish() == 0, command.err.read_text()
    assert len(run.read_events("serve")) == 2
    assert stored(run.root).startswith(before)
    assert set(failures(run.root)) <= {"cancelled", "policy_unavailable"}
    assert len(finished(run.root)) == len(set(finished(run.root))) == 14
