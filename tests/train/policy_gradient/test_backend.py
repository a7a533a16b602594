"""How a training by policy gradients is planned, from what lies in the run's folder."""

import json

import pytest

from tests.train.fake_checkpoints import checkpoint, published
from tests.train.train_data import settings_for
from webgym_cli.config.rl import RlSettings
from webgym_cli.errors import MissingStageError, SettingsError, UsageError, VenvError
from webgym_cli.loop.training import plan_training
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.records.dataset import RlData
from webgym_cli.records.sampling import Sampling
from webgym_cli.store.checkpoints import RECORD, set_first_version
from webgym_cli.store.run import RunDir
from webgym_cli.train import working_dir
from webgym_cli.train.policy_gradient.backend import total_steps
from webgym_cli.util.files import read_json, write_json
from webgym_cli.util.json_values import digest_json

NAME = "model_20260109_000000"
ZERO = {"deepspeed": "ds_config_cpu_zero1.json"}
WEBRL = {"current_rows": 6, "replayed_rows": 3}


def batch(run, iteration=0, policy="tiny", digest="d0", reward=1.0, **facts):
    names = {"iteration": iteration, "model_name": NAME, "policy": policy, "plan_digest": "p", "digest": digest}
    model = str(run.checkpoints / policy) if iteration else "tiny"
    counts = {"trained": 6, "rows": 9, "tokens": 90, "trained_tokens": 30}
    data = RlData(model=model, sampling=Sampling(temperature=1.0), **names, **counts).model_copy(update=facts)
    run.rl_data.mkdir(exist_ok=True)
    write_json(run.rl_data / "rl.json", data.model_dump(mode="json", by_alias=True))
    write_json(run.rl_data / "trajectories.jsonl", {"number": 0, "reward": reward})


def settings(role, algorithm="grpo", train=None, **rl):
    loaded_settings = settings_for(role=role, train={"algorithm": algorithm} | (train or {}))
    return loaded_settings.model_copy(update={"rl": RlSettings.model_validate(rl)})


@pytest.fixture
def planned(run, role):
    """Returns how to plan the training of the batch that is there."""

    def plan(algorithm="grpo", environ=None, train=None, **rl):
        return plan_training(run, settings(role, algorithm, train, **rl), environ or {})

    return plan


def policy(run, version=1, algorithm="grpo", states=("actor",), **training):
    """A policy that gradients made."""
    facts = {"data_digest": "d", "config_digest": "c", "parent": "tiny", "carried": False}
    record = working_dir.TrainingIdentity(**facts | {"world_size": 1, "zero_stage": None} | training)
    folder = published(run, version, record)
    for name in states:
        (folder / "rl_state" / name).mkdir(parents=True)
    (folder / "trainer_state.json").write_text('{"global_step": 4, "max_steps": 4, "kl_coef": 0.25}')
    saved = Checkpoint.model_validate(read_json(folder / RECORD)).model_copy(update={"algorithm": algorithm})
    write_json(folder / RECORD, saved.model_dump(mode="json"))
    return folder


def test_the_first_training_is_fresh(planned, run, role):
    batch(run)
    plan = planned("rloo", actor={"ppo_mini_batch_size": 4, "ppo_epochs": 3})
    assert (plan.start.mode, plan.algorithm, plan.total_steps) == ("fresh", "rloo", 6)
    assert (plan.data.name, plan.data.parent) == (NAME, "tiny")
    assert plan.launch.argv[0] == str(role / "bin/python")
    assert plan.launch.argv[1:] == ("-m", "webgym_cli.trainer", "launch.json")
    record = json.loads(plan.text())
    assert record["data"] == str(run.rl_data.resolve())
    assert (record["model"]["path"], record["algorithm"]["adv_estimator"]) == ("tiny", "rloo")
    assert record["model"]["trust_remote_code"] is False
    assert record["trainer"]["output_dir"] == str((run.checkpoints / f"{NAME}.partial").resolve())
    assert (record["trainer"]["seed"], record["actor"]["ppo_mini_batch_size"]) == (7, 4)
    assert "data" not in record.get("rl", {})
    assert plan.launch.placement.nodes == 1
    assert not plan.folder.exists()


def test_a_base_model_s_own_states_are_not_gone_on_with_which_is_told(run, role, tmp_path):
    base = checkpoint(tmp_path / "model.pt")
    with_ = settings_for(base, role=role, train={"algorithm": "grpo"})
    batch(run, policy=str(base), model=str(base))
    plan = plan_training(run, with_, {})
    assert (plan.start.mode, "model.pt is a base model" in plan.notes[-1]) == ("fresh", True)
    (base / "optimizer.pt").unlink()
    assert plan_training(run, with_, {}).notes == plan.notes[:-1]


def test_several_processes_are_torchrun_s(planned, run):
    batch(run)
    plan = planned(train={"nproc_per_node": 2})
    assert plan.launch.argv[1:6] == ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    assert plan.start.training.world_size == 2


def test_the_steps_are_those_of_the_trainer():
    rl_data = RlData.model_construct(trained=9, rows=14)
    divided = {"actor": {"ppo_mini_batch_size": 4, "ppo_epochs": 2}}
    assert total_steps(RlSettings(), rl_data) == 1
    assert total_steps(RlSettings.model_validate(divided), rl_data) == 6
    assert total_steps(RlSettings(), rl_data, webrl=True) == 2
    critic = {"webrl": {"critic_epochs": 3}}
    assert total_steps(RlSettings.model_validate(divided | critic), rl_data, webrl=True) == 4 * (3 + 2)


def test_what_is_missing_or_of_another_policy_is_named(planned, run, role):
    with pytest.raises(MissingStageError, match="there is no batch") as caught:
        planned()
    assert caught.value.hint == f"webgym prepare {run.root}"
    batch(run)
    policy(run)
    with pytest.raises(MissingStageError, match="the batch is for training tiny in iteration 0, the current policy is"):
        planned()
    (run.rl_data / "rl.json").write_text('{"schema": 1}')
    with pytest.raises(UsageError, match=r"rl\.json: iteration: Field required"):
        planned()


def test_on_several_nodes_torchrun_takes_the_rest_from_variables(planned, run, role):
    batch(run)
    plan = planned(train={"executor": "ray", "nodes": 2, "nproc_per_node": 3})
    command = ("-m", "torch.distributed.run", "-m", "webgym_cli.trainer", "launch.json")
    assert plan.launch.argv[1:] == command
    assert (plan.start.training.world_size, plan.launch.placement.nodes) == (6, 2)


def test_a_missing_file_or_role_is_refused(planned, run, role):
    batch(run)
    with pytest.raises(SettingsError, match=r"rl\.trainer\.deepspeed: no file 'none\.json'"):
        planned(trainer={"deepspeed": "none.json"})
    (role / "bin/python").unlink()
    with pytest.raises(VenvError, match="does not exist"):
        planned()


def test_deepspeed_s_file_and_stage(planned, run):
    batch(run)
    plan = planned(trainer={"deepspeed": "ds_config_h100_zero2.json"})
    assert plan.start.training.zero_stage == 2
    assert plan.launch.deepspeed["zero_optimization"]["stage"] == 2
    assert plan.launch.config["trainer"]["deepspeed"].endswith("/ds_config_h100_zero2.json")


@pytest.mark.parametrize("processes", [1, 2])
def test_weights_and_moments_are_carried(planned, run, processes):
    folder = policy(run, world_size=processes)  # without ZeRO each process has all of them
    batch(run, 1, folder.name)
    plan = planned()
    assert (plan.start.mode, plan.start.source, plan.start.training.carried) == ("carried", folder, True)
    assert plan.options["trainer"]["carry_state"] == str(folder / "rl_state")


@pytest.mark.parametrize(
    ("reason", "how", "fields"),
    [
        ("train.keep_optimizer_state is off", {"train": {"keep_optimizer_state": False}}, {}),
        ("the optimizer starts fresh: the adapter is new", {"model": {"lora_rank": 4}}, {}),
        ("has no states", {}, {"states": ()}),
        ("2 process(es), this training has 1", {"trainer": ZERO}, {"world_size": 2, "zero_stage": 1}),
        ("ZeRO-1, this training uses no DeepSpeed", {}, {"zero_stage": 1}),
        ("was trained without the critic of gae", {"algorithm": "gae"}, {}),
    ],
)
def test_why_nothing_is_carried(planned, run, reason, how, fields):
    folder = policy(run, **fields)
    batch(run, 1, folder.name)
    plan = planned(**how)
    assert (plan.start.mode, plan.start.training.carried) == ("fresh", False)
    assert plan.options["trainer"].get("carry_state") is None
    assert reason in plan.notes[0] and "the one before" not in plan.notes[0]


ADAPTER = {"base": "tiny", "rank": 4, "alpha": 16, "targets": "all-linear", "vision": False}


def test_a_lora_training_goes_on_with_its_adapter_on_the_model_below_it(planned, run, tmp_path, monkeypatch):
    monkeypatch.setattr("webgym_cli.store.adapters.policy_name", lambda run, settings: "policy")
    folder = policy(run)
    saved = Checkpoint.model_validate({**read_json(folder / RECORD), "adapter": ADAPTER})
    write_json(folder / RECORD, saved.model_dump(mode="json"))
    (folder / "adapter").mkdir()
    batch(run, 1, folder.name)
    plan = planned(model={"lora_rank": 4})
    model = plan.launch.config["model"]
    assert (model["path"], model["adapter"]) == ("tiny", str(folder / "adapter"))
    assert (plan.start.mode, plan.record["adapter"].base) == ("carried", "tiny")
    for changed in ({"lora_rank": 8}, {"lora_rank": 4, "lora_alpha": 2}, {"lora_rank": 4, "target_modules": "q_proj"}):
        plan = planned(model=changed)
        assert (plan.launch.config["model"]["path"], plan.record["adapter"].base) == (str(folder), "policy")
        assert "adapter" not in plan.launch.config["model"] and plan.start.mode == "fresh"
        assert plan.notes[0].endswith(f"{folder.name} holds the one before in its weights")
    assert "only a LoRA adapter" in planned().notes[0]
    batch(run, 1, folder.name, **WEBRL)
    assert "adapter" not in planned(algorithm="webrl", model={"lora_rank": 4}).launch.config["model"]


def test_an_interrupted_training_of_the_same_batch_goes_on(planned, run):
    batch(run)
    first = planned(actor={"optim": {"lr": 0.1}})
    folder = run.checkpoints / "model_20260108_000000.partial"
    (folder / "state-2").mkdir(parents=True)
    write_json(folder / working_dir.RECORD, first.start.training.model_dump(mode="json"))
    plan = planned(actor={"optim": {"lr": 0.1}}, trainer={"save_freq": 5})
    assert (plan.start.mode, plan.start.adopted, plan.start.source) == ("continued", folder, None)
    assert "after step 2" in plan.notes[-1]
    assert planned(actor={"optim": {"lr": 0.2}}).start.mode == "fresh"
    checkpoint(folder / "checkpoint-4")
    assert planned(actor={"optim": {"lr": 0.1}}).start.mode == "finished"
    for changed in ({"digest": "another"}, {"reward": 0.0}):  # other episodes; the same, judged again
        batch(run, **changed)
        assert planned(actor={"optim": {"lr": 0.1}}).start.mode == "fresh"
    (run.rl_data / "trajectories.jsonl").unlink()
    with pytest.raises(MissingStageError, match=r"trajectories\.jsonl: can't be read"):
        planned()


def test_the_trainer_decides_whether_a_finished_training_of_an_older_version_had_these_rewards(planned, run):
    batch(run)
    former = planned().start.training.model_copy(update={"data_digest": "d0"})
    folder = checkpoint(run.checkpoints / f"{NAME}.partial/checkpoint-4").parent
    write_json(folder / working_dir.RECORD, former.model_dump(mode="json"))
    for reward in (1.0, 0.0):
        batch(run, reward=reward)
        start = planned().start
        assert (start.mode, start.training.data_digest) == ("continued", "d0")


def test_an_interrupted_training_of_a_run_that_was_moved_goes_on(planned, run, role, tmp_path):
    batch(run, 1, policy(run).name)
    first = planned(trainer=ZERO)
    (first.folder / "state-2").mkdir(parents=True)
    write_json(first.folder / working_dir.RECORD, first.start.training.model_dump(mode="json"))
    moved = RunDir(run.root.rename(tmp_path / "moved"))
    assert plan_training(moved, settings(role, trainer=ZERO), {}).start.mode == "continued"


@pytest.mark.parametrize("trainer", [{}, ZERO])
@pytest.mark.parametrize("iteration", [0, 1])
def test_an_interrupted_training_of_an_older_version_goes_on(planned, run, trainer, iteration):
    batch(run, iteration, policy(run).name if iteration else "tiny")
    first = planned(trainer=trainer)
    config = {name: value for name, value in first.launch.config.items() if name not in ("data", "plugins")}
    places = ("output_dir", "save_freq", "carry_state")
    config["trainer"] = {name: value for name, value in config["trainer"].items() if name not in places}
    digest = digest_json([config, first.launch.deepspeed])
    assert digest != first.start.training.config_digest
    (first.folder / "state-2").mkdir(parents=True)
    begun = first.start.training.model_copy(update={"config_digest": digest})
    write_json(first.folder / working_dir.RECORD, begun.model_dump(mode="json"))
    plan = planned(trainer=trainer)
    assert (plan.start.mode, plan.start.training) == ("continued", first.start.training)
    assert planned(trainer=trainer, actor={"optim": {"lr": 0.2}}).start.mode != "continued"


@pytest.mark.parametrize("trainer", [{}, ZERO])
@pytest.mark.parametrize(("before", "now"), [(2, 1), (1, 2)])
def test_an_interrupted_training_goes_on_in_other_processes_unless_zero_divides_its_states(
    planned, run, trainer, before, now
):
    batch(run)
    first = planned(train={"nproc_per_node": before}, trainer=trainer)
    (first.folder / "state-2").mkdir(parents=True)
    write_json(first.folder / working_dir.RECORD, first.start.training.model_dump(mode="json"))
    plan = planned(train={"nproc_per_node": now}, trainer=trainer)
    assert (plan.start.mode, plan.start.training.world_size) == ("fresh" if trainer else "continued", now)
    assert (f"can't go on with {now}" in plan.notes[-1]) is bool(trainer)


def test_the_reference_is_the_policy_that_gradients_began_with(planned, run):
    kl = {"use_kl_loss": True}
    baseline = policy(run, 1, "sft", states=())
    batch(run, 1, baseline.name)
    assert planned(actor=kl).launch.config["ref"]["path"] is None  # the trainer's own start
    assert planned(actor=kl).record["reference"] == baseline.name
    newest = policy(run, 2)
    batch(run, 2, newest.name)
    assert planned().launch.config["ref"]["path"] is None
    assert planned(actor=kl).launch.config["ref"]["path"] == str(baseline.resolve())
    assert [planned(**given).record.get("reference") for given in ({}, {"actor": kl})] == [None, baseline.name]
    assert planned(actor=kl, ref={"path": "other"}).launch.config["ref"]["path"] == "other"


def test_without_a_baseline_the_reference_is_the_base_model(planned, run):
    folder = policy(run)
    batch(run, 1, folder.name)
    assert planned(algorithm="rloo", actor={"use_kl_loss": True}).launch.config["ref"]["path"] == "tiny"


def test_critic_and_kl_coefficient_go_on_and_the_warm_up_counts_from_the_baseline(planned, run):
    policy(run, 1, "sft", states=())
    newest = policy(run, 2, "gae", states=("actor", "critic"))
    (newest / "critic").mkdir()
    batch(run, 2, newest.name)
    more = {"trainer": {"critic_warmup": 3}}
    rl = {"algorithm": "gae"}
    plan = planned(**rl, **more)
    assert plan.start.mode == "carried"
    assert plan.launch.config["critic"]["path"] == str(newest / "critic")
    assert plan.launch.config["trainer"]["critic_warmup"] == 4
    assert plan.launch.config["algorithm"]["kl_ctrl"]["kl_coef"] == 0.001
    named = {"critic": {"path": "another"}}  # the first critic
    assert planned(**rl, **named).launch.config["critic"]["path"] == str(newest / "critic")
    anew = {"train": {"keep_optimizer_state": False}}
    assert planned(**rl, **named, **anew).launch.config["critic"]["path"] == str(newest / "critic")


def test_the_warm_up_counts_from_the_version_that_the_imported_episodes_left(planned, run):
    set_first_version(run, 3)
    batch(run, 3)
    assert planned("gae", trainer={"critic_warmup": 2}).launch.config["trainer"]["critic_warmup"] == 5


def test_demonstrations_are_always_imitated(run, role):
    loaded_settings = settings(role)
    loop = loaded_settings.loop.model_copy(update={"demonstration_iterations": 1})
    batch(run)
    with pytest.raises(MissingStageError, match="there is no dataset"):
        plan_training(run, loaded_settings.model_copy(update={"loop": loop}), {})


def test_a_phase_of_webrl_holds_to_the_policy_that_it_begins_with(planned, run):
    policy(run, 1, "sft", states=())
    newest = policy(run, 2, "webrl", states=("actor", "critic"))
    (newest / "critic").mkdir()
    batch(run, 2, newest.name, **WEBRL)
    plan = planned("webrl", actor={"ppo_mini_batch_size": 4, "use_kl_loss": True}, webrl={"objective": "released"})
    assert (plan.start.mode, plan.algorithm, plan.total_steps) == ("carried", "webrl", 6)  # of nine actions, twice
    assert plan.launch.argv[2] == "webgym_cli.trainer"
    record = json.loads(plan.text())
    assert (record["webrl"]["objective"], record["webrl"]["lam"], record["webrl"]["gamma"]) == ("released", 0.5, 0.9)
    assert (record["model"]["path"], record["ref"]["path"]) == (str(newest), None)
    assert record["critic"]["path"] == str(newest / "critic")
    assert record["trainer"]["carry_state"] == str(newest / "rl_state")
    assert "replay" not in record and "adv_estimator" not in record["algorithm"]
    assert planned("webrl", ref={"path": "other"}).launch.config["ref"]["path"] == "other"
    changed = planned("webrl", actor={"ppo_mini_batch_size": 4, "use_kl_loss": True}, webrl={"beta": 2.0})
    assert changed.start.training.config_digest != plan.start.training.config_digest


def test_the_first_phase_of_webrl_has_a_critic_of_the_policy(planned, run):
    baseline = policy(run, 1, "sft", states=())
    batch(run, 1, baseline.name, **WEBRL)
    plan = planned("webrl")
    assert (plan.start.mode, plan.total_steps, plan.launch.config["critic"]["path"]) == ("fresh", 2, None)
    assert planned("webrl", critic={"path": "another"}).launch.config["critic"]["path"] == "another"
    batch(run, 1, baseline.name)
    assert planned("grpo").launch.config.get("webrl") is None


def test_a_batch_is_for_webrl_or_for_a_gradient(planned, run):
    batch(run)
    with pytest.raises(MissingStageError, match=r"the batch was not prepared for train\.algorithm=webrl") as caught:
        planned("webrl")
    assert caught.value.hint == f"webgym prepare {run.root} -s train.algorithm=webrl"
    batch(run, **WEBRL)
    with pytest.raises(MissingStageError, match=r"train\.algorithm=webrl, .*grpo"):
        planned("grpo")


@pytest.mark.parametrize(("before", "now"), [("gae", "webrl"), ("webrl", "gae")])
def test_the_critic_of_another_algorithm_is_not_gone_on_with(planned, run, before, now):
    newest = policy(run, 1, before, states=("actor", "critic"))
    (newest / "critic").mkdir()
    batch(run, 1, newest.name, **(WEBRL if now == "webrl" else {}))
    plan = planned(now)
    assert (plan.start.mode, plan.launch.config["critic"]["path"]) == ("fresh", None)
    assert f"was trained without the critic of {now}" in plan.notes[0]
