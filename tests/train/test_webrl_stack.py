"""Two phases of WebRL through prepare and train: real trainings of a tiny model, the second one killed meanwhile."""

import asyncio
import json
from pathlib import Path

import psutil
import pytest

from tests.prepare.rl_builders import CALL, episode, served, store, talk, write_plan
from tests.prepare.webrl_builders import POLICY, Scorer, at, demonstrations, experience, prepared, second_phase
from tests.records.builders import UNSOLVED
from tests.train.training import Trained, train
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.errors import JobError
from webgym_cli.loop.training import plan_training
from webgym_cli.serve.weights import check_model
from webgym_cli.store.checkpoints import policy_path
from webgym_cli.store.run import RunDir, new_attempt
from webgym_cli.store.weights import list_tensors
from webgym_cli.train.execute import execute

pytestmark = pytest.mark.stack
RATES = ("rl.actor.optim.lr=0.001", "rl.critic.optim.lr=0.001", "rl.actor.ppo_mini_batch_size=4")
SMALL = (*RATES, "rl.model.enable_gradient_checkpointing=false", "rl.webrl.objective=released", "venvs.device=cpu")


@pytest.fixture(scope="module")
def first(train_python, tiny_model_dir, tmp_path_factory) -> Trained:
    """The phase after an imitation: four actions of its own, and those of earlier successes."""
    shown = demonstrations(RunDir(tmp_path_factory.mktemp("shown") / "run"), tiny_model_dir)
    run = RunDir(tmp_path_factory.mktemp("webrl") / "a run")
    settings = second_phase(run, tiny_model_dir, experience(shown), f"venvs.train={train_python}", *SMALL)
    asyncio.run(prepared(run, settings, Scorer()))
    return train(run, settings)


@pytest.fixture(scope="module")
def second(first) -> Trained:
    """The phase after it, whose trainer is killed after its second step and started again."""
    run = first.run
    actor = first.settings.rl.actor.model_copy(update={"ppo_mini_batch_size": 1})  # enough steps to be killed between
    settings = first.settings.model_copy(update={"rl": first.settings.rl.model_copy(update={"actor": actor})})
    tokens = ModelTokens(str(policy_path(run, settings)))
    write_plan(run, *(episode(number, iteration=2) for number in (8, 9)))
    now = [served(talk(8, policy=first.checkpoint.name), tokens)]
    now += [served(talk(9, CALL, CALL, policy=first.checkpoint.name, outcome=UNSOLVED), tokens)]
    store(run, *(at(one, 2) for one in now))
    asyncio.run(prepared(run, settings, Scorer()))
    killed = []

    def kill(event):
        if event["event"] == "train" and event["done"] >= 2 and not killed:
            killed.extend(trainers())
            for process in killed:
                process.kill()

    plan = plan_training(run, settings)
    assert (plan.start.mode, plan.launch.config["critic"]["path"]) == ("carried", str(first.folder / "critic"))
    with pytest.raises(JobError):
        asyncio.run(execute(plan, run, settings, new_attempt(run), kill))
    assert killed and plan_training(run, settings).start.mode == "continued"
    return train(run, settings)


def trainers() -> list[psutil.Process]:
    """Return the trainer's processes, of those that this test started."""
    mine = psutil.Process().children(recursive=True)
    named = [child for child in mine if child.cmdline()[-1:] == ["launch.json"]]
    return [child for child in named if "guard.py" not in str(child.cmdline())]


def test_a_phase_tells_what_it_learned_by(first):
    checkpoint = first.checkpoint
    facts = (checkpoint.algorithm, checkpoint.parent, checkpoint.version, checkpoint.resumable)
    assert facts == ("webrl", POLICY, 2, True)
    assert checkpoint.objective == first.settings.rl.webrl.model_dump()
    rows = [json.loads(line) for line in (first.run.rl_data / "rows.jsonl").read_text().splitlines()]
    assert checkpoint.steps == 2 * -(-len(rows) // 4)
    assert checkpoint.metrics["data/replayed"] == sum(row["replayed"] for row in rows) / len(rows) > 0
    assert checkpoint.loss == checkpoint.metrics["actor/loss"] != checkpoint.metrics["critic/loss"]
    wanted = {"critic/loss", "critic/accuracy", "critic/auc", "actor/loss", "actor/log_ratio"}
    assert wanted <= checkpoint.metrics.keys()


def test_a_phase_leaves_a_policy_that_is_served_and_a_critic(first, tiny_model_dir):
    assert check_model(str(first.folder)) == str(first.folder)
    shapes = [{name: shape for name, _, shape in list_tensors(folder)} for folder in (tiny_model_dir, first.folder)]
    assert shapes[0] == shapes[1]
    assert (first.folder / "critic" / "outcome_heads.safetensors").is_file()


def test_the_next_phase_goes_on_from_policy_and_critic_and_after_its_kill(first, second):
    checkpoint = second.checkpoint
    assert (checkpoint.algorithm, checkpoint.parent, checkpoint.version) == ("webrl", first.checkpoint.name, 3)
    assert len(second.losses) == checkpoint.steps
    assert checkpoint.metrics["actor/log_ratio"] != 0
    assert Path(policy_path(second.run, second.settings)).resolve() == second.folder.resolve()
