"""The dataset as it is written, with a model's tokenizer: the same bytes for the same seed, and what was left out."""

import json
import shutil

import pytest

from tests.cli.runs import model as word_model
from tests.prepare.buffer import fill, planned, settings
from tests.records.builders import CRASHED, SOLVED, UNSOLVED, new_run, trajectory
from webgym_cli.errors import SettingsError, WebGymError
from webgym_cli.prepare.sft.execute import execute
from webgym_cli.prepare.sft.plan import plan_dataset
from webgym_cli.prepare.sft.train_config import refresh_train_config
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Outcome
from webgym_cli.store.index.build import rebuild
from webgym_cli.store.index.query import open_index
from webgym_cli.store.prepared import find_prepared

MADE = [trajectory(number, steps=5, started_at=f"2026-01-02T03:04:{number:02d}.000+00:00") for number in range(12)]
MADE += [trajectory(12, outcome=UNSOLVED), trajectory(13, outcome=CRASHED)]
ALL = "algorithm_config.positive_samples_to_train=null"
CHOSEN = ("bf16=false", "deepspeed_config_filename=null", "positive_samples_to_train=25", "val_split_ratio=0.2")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return word_model(tmp_path_factory.mktemp("word") / "model")


def chosen(model, *overrides):
    algorithm = [f"algorithm_config.{text}" for text in (*CHOSEN, "do_eval=true")]
    policy = (f"policy_config.base_model={model}", "policy_config.template=qwen3_vl_nothink")
    return settings(*policy, *algorithm, "venvs.device=cpu", *overrides)


def prepared(run, with_, sink=lambda event: None):
    """Prepare, and return the bytes of the dataset's files."""
    with open_index(run) as index:
        record = execute(plan_dataset(run, with_, index), run, with_, sink)
    assert find_prepared(run) == record
    return record, {name: (run.dataset / f"finetune_{name}.json").read_bytes() for name in ("train", "val")}


def test_the_same_seed_gives_the_same_bytes(run, model):
    """Twice, over an index that was built anew, and over files that several writers wrote in another order."""
    with_ = chosen(model, "filters.max_steps_per_trajectory=4")
    fill(run, *MADE)
    first, files = prepared(run, with_)
    assert (first.train_samples > 0, first.val_samples > 0) == (True, True)
    assert len(json.loads(files["train"])) + len(json.loads(files["val"])) == 25
    assert prepared(run, with_)[1] == files
    rebuild(run)
    assert prepared(run, with_)[1] == files
    shutil.rmtree(run.trajectories(Split.TRAIN))
    for number, episode in enumerate(reversed(MADE)):
        fill(run, episode, rank=number % 3)
    again, others = prepared(run, with_)
    assert others == files
    assert (again.data_digest, again.plan_digest) == (first.data_digest, first.plan_digest)
    assert prepared(run, chosen(model, "filters.max_steps_per_trajectory=4", "seed=1"))[1] != files
    raised = prepared(run, chosen(model, "filters.max_steps_per_trajectory=4", "image.image_max_pixels=2000000"))[0]
    assert raised.plan_digest != first.plan_digest  # screenshots that were too large before are fit now


def test_an_episode_whose_first_attempt_was_cancelled_gives_the_same_samples(run, model, tmp_path):
    """A rollout that was interrupted and went on gives the dataset of one that was not."""
    other = new_run(tmp_path / "other")
    cancelled = MADE[3].model_copy(update={"outcome": Outcome(failure=FailureKind.CANCELLED), "steps": ()})
    fill(run, *MADE)
    fill(other, *MADE[:3], cancelled, *MADE[4:])
    fill(other, MADE[3].model_copy(update={"attempt": 1, "id": f"{MADE[3].id}.1"}))
    (first, files), (second, others) = prepared(run, chosen(model)), prepared(other, chosen(model))
    assert files == others and first.plan_digest != second.plan_digest


def test_what_was_left_out_adds_up(run, model):
    fill(run, *MADE)
    with_ = chosen(model, "filters.max_steps_per_task=40")
    events = []
    record, _ = prepared(run, with_, events.append)
    facts = json.loads((run.dataset / "dropped.json").read_text())
    assert facts["samples"] == record.train_samples + record.val_samples == 25
    assert facts["samples_by_iteration"] == {"0": 25}
    assert (facts["trajectories_read"], facts["steps_read"]) == (14, 64)
    assert facts["failures"] == {"browser_crashed": 1}
    assert (facts["steps_of_dropped_trajectories"], facts["dropped_steps"]["task_cap"]) == (4, 20)
    out = facts["steps_of_dropped_trajectories"] + sum(facts["dropped_steps"].values())
    assert facts["steps_read"] == out + facts["samples"] + facts["not_drawn_steps"]
    over = facts["over_cutoff_len"]
    assert over == {"cutoff_len": 16384, **dict.fromkeys(("steps", "longest_tokens", "shortened", "left_out"), 0)}
    assert [event for event in events if event["event"] == "over_cutoff_len"] == []
    assert events[-1]["dropped_steps"]["too_long"] == 0


@pytest.mark.parametrize(("outcome", "notes"), [(CRASHED, 1), (SOLVED, 0)])
def test_an_iteration_that_adds_nothing_to_the_dataset_is_noted(run, model, outcome, notes):
    fill(run, *MADE, trajectory(14, iteration=1, outcome=outcome))
    events = []
    with planned(run, chosen(model), [0, 1]) as plan:
        execute(plan, run, chosen(model), events.append)
    assert sum("iteration 1" in event["message"] for event in events if event["event"] == "note") == notes


def test_over_long_samples_are_reported(run, model):
    fill(run, *MADE)
    events = []
    with pytest.raises(WebGymError, match=r"\(60 .*too_long\)"):
        prepared(run, chosen(model, "algorithm_config.cutoff_len=16"), events.append)
    assert not run.dataset.exists()
    (event,) = [event for event in events if event["event"] == "over_cutoff_len"]
    longest = event["longest_tokens"]
    text = f"60 drawn steps have more tokens than algorithm_config.cutoff_len (16), the longest {longest}: "
    assert event["message"] == f"{text}0 lost their oldest rounds, 60 were left out"
    prepared(run, chosen(model, f"algorithm_config.cutoff_len={longest - 1}", ALL))
    over_cutoff_len = json.loads((run.dataset / "dropped.json").read_text())["over_cutoff_len"]
    # the fifth step of each of the twelve solved episodes is the longest; with a round less it fits
    counts = {"steps": 12, "shortened": 12, "left_out": 0}
    assert over_cutoff_len == {"cutoff_len": longest - 1, "longest_tokens": longest, **counts}


@pytest.mark.parametrize("own", [True, False])
def test_deepspeeds_file_is_renewed_unless_its_copy_was_edited(run, model, tmp_path, monkeypatch, own):
    """`train_config.yaml` names the copy, so that its own text is the same whatever the file holds."""
    monkeypatch.setattr("webgym_cli.prepare.sft.train_config.is_own", lambda root: own)
    mine, other = tmp_path / "mine.json", tmp_path / "other.json"
    mine.write_text('{"zero_optimization": {"stage": 1}}')
    other.write_text('{"zero_optimization": {"stage": 3}}')
    with_ = chosen(model, f"algorithm_config.deepspeed_config_filename={mine}")
    fill(run, *MADE)
    prepared(run, with_)
    copy, events = run.dataset / "deepspeed.json", []

    def trained(with_):
        """Whether it is renewed, and the copy with which it is trained."""
        events.clear()
        refresh_train_config(run, with_, events.append)
        return any(event["renewed"] for event in events), copy.read_text()

    assert trained(with_) == (False, mine.read_text())
    assert events == []
    mine.write_text('{"zero_optimization": {"stage": 2}}')
    assert trained(with_) == (True, mine.read_text())
    assert len(events) == 1
    assert trained(with_) == (False, mine.read_text())
    with_ = chosen(model, f"algorithm_config.deepspeed_config_filename={other}")
    assert trained(with_) == (True, other.read_text())
    copy.write_text('{"zero_optimization": {"stage": 0}}')
    other.write_text("{}")
    if own:
        assert trained(with_) == (False, '{"zero_optimization": {"stage": 0}}')
        assert [(event["event"], event["renewed"]) for event in events] == [("train_config", False)]
    else:
        with pytest.raises(SettingsError, match="edited there"):
            trained(with_)
    copy.unlink()
    assert trained(with_) == (True, "{}")
