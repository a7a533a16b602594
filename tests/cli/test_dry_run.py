"""A dry run prints a plan and changes nothing."""

import json
import re

import pytest
import typer.main

from tests.app import app
from tests.cli.runs import filled, model, tree
from tests.docs.pages import ROOT
from tests.forked import webgym
from tests.imports.foreign import webrl_episode
from webgym_cli.store.status import begin

ORACLE = ("-c", "demo", "--policy", "oracle")
PLANS = {
    "rollout": (["rollout", "new", *ORACLE, "--episodes", "5"], "rollout"),
    "judge": (["judge", "run", "--all", "-s", "judge.base_url=scripted"], "judge"),
    "score": (["score", "run", "--orm", "{model}"], "score"),
    "prepare": (["prepare", "run"], "prepare"),
    "loop": (["loop", "new", "-c", "demo", "-s", "policy_config.base_model={model}"], "loop"),
    "curriculum": (["curriculum", "new", "-c", "demo-webrl", "-s", "policy_config.base_model={model}"], "curriculum"),
    "resume": (["resume", "run"], "prepare"),
    "eval": (["eval", "oracle", "-b", "miniwob:click-test", "-o", "new"], "eval"),
    "record": (["record", "new", "--task", "sites:shop-cart"], "record"),
    "gateway": (["gateway", "new"], "gateway"),
    "serve": (["serve", "run", "-s", "venvs.serve={python}"], "serve"),
    "report": (["report", "run", "--json"], "report"),
    "import": (["import", "webrl", "results", "run"], "import"),
    "export-sharegpt": (["export-sharegpt", "run", "-o", "out", "--format", "hf"], "export-sharegpt"),
    "track": (["track", "run", "--json"], "track"),
    "gc": (["gc", "run", "--json"], None),
    "init-model": (["init-model", "tiny", "tiny", "--json"], "init-model"),
    "setup": (["setup", "--role", "train", "--device", "cpu"], None),
    "train": (["train", "run", "-s", "venvs.train={python}"], None),
}


@pytest.fixture
def place(tmp_path):
    """A run whose index is not there yet, episodes of another system, and an interpreter that does nothing."""
    begin(filled(tmp_path), "prepare", {})
    webrl_episode(tmp_path / "results", "12", ['do(action="Click", element="3")'])
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    (tmp_path / "llamafactory-cli").symlink_to(python)
    model(tmp_path / "other")
    return tmp_path


def able():
    """Return the commands that have a dry run."""
    commands = typer.main.get_command(app).commands.items()
    return sorted(name for name, command in commands if any(given.name == "dry_run" for given in command.params))


def test_what_writes_or_runs_something_has_a_dry_run_and_the_page_names_them():
    pipeline = {"rollout", "judge", "score", "prepare", "train", "loop", "resume", "serve"}
    assert pipeline | {"import", "export-sharegpt", "gc", "setup", "init-model", "report"} <= set(able())
    part = (ROOT / "docs/shell.md").read_text().split("## Dry runs")[1].split("The")[0]
    assert sorted(re.findall(r"`([a-z][a-z-]*)`", part)) == able()


@pytest.mark.parametrize("name", [name for name in able() if name != "train"])
def test_a_dry_run_prints_a_plan_and_writes_nothing(place, name):
    arguments, stage = PLANS[name]
    words = [word.format(model=place / "other", python=place / "python") for word in arguments]
    before = tree(place)
    result = webgym(*words, "--dry-run", cwd=place, WEBGYM_HOME=str(place / "home"))
    assert tree(place) == before
    plans = result.stdout.splitlines()
    if name == "report" or stage is None or "--json" in words:
        assert [json.loads(line) for line in plans]
    assert not stage or stage in plans[0]


@pytest.mark.parametrize(
    ("changed", "noted"),
    [("algorithm_config.positive_samples_to_train=1", True), ("algorithm_config.learning_rate=0.5", False)],
)
def test_a_dry_training_writes_nothing_and_says_if_only_prepare_reads_what_is_changed(place, changed, noted):
    webgym("prepare", "run", cwd=place)
    before = tree(place)
    result = webgym("train", "run", "-s", f"venvs.train={place / 'python'}", "-s", changed, "--dry-run", cwd=place)
    assert tree(place) == before
    (plan,) = map(json.loads, result.stdout.splitlines())
    assert (plan["event"], plan["stage"], plan["iteration"]) == ("plan", "train", 0)
    assert (f"webgym prepare {place / 'run'}" in result.stderr) is noted


@pytest.mark.parametrize(
    ("words", "noted"),
    [
        (("train.algorithm=grpo",), True),
        (("train.algorithm=grpo", "policy_config.top_k=-1", "policy_config.top_p=1"), False),
        (("train.algorithm=sft",), False),
        (("train.algorithm=grpo", "rollout.policy=oracle"), False),
    ],
)
def test_episodes_of_another_server_that_could_not_be_trained_on_are_noted_before_they_run(place, words, noted):
    given = ("tasks.train=miniwob:click-test", "rollout.policy=http://127.0.0.1:9/v1", *words)
    result = webgym("rollout", "new", "--dry-run", *(word for one in given for word in ("-s", one)), cwd=place)
    assert ("can't train on these episodes" in result.stderr) is noted


def test_a_dry_run_counts_by_the_index_that_is_there(place):
    """And takes in what is new elsewhere."""
    plain = webgym("prepare", "run", "--dry-run", cwd=place).stdout
    webgym("inspect-buffer", "run", cwd=place)
    before = tree(place)
    assert webgym("prepare", "run", "--dry-run", cwd=place).stdout == plain
    assert tree(place) == before
    plan = json.loads(plain)
    assert (plan["trajectories"], plan["eligible_steps"]) == (6, 12)


def test_a_dry_export_names_what_it_would_take(place):
    def planned(*arguments):
        (line,) = webgym("export-sharegpt", "run", *arguments, "-n", cwd=place).stdout.splitlines() or [""]
        return json.loads(line)

    assert planned("--format", "jsonl")["trajectories"] == 4
    assert planned("train-0000-00001")["trajectories"] == 1
    assert planned("-o", "x.json").items() >= {"format": "json", "unit": "step", "out": "x.json"}.items()
    webgym("export-sharegpt", "run", "nosuch", "-n", cwd=place, code=2)


def test_a_dry_run_refuses_what_the_command_would(place):
    (place / "taken").mkdir()
    (place / "taken" / "x").touch()
    webgym("init-model", "tiny", "taken", "-n", cwd=place, code=2)
    webgym("report", "nosuch", "-n", cwd=place, code=3)
    for name in ("eval", "judge"):  # no model has a price
        assert "cost.prices" in webgym(*PLANS[name][0], "--max-cost", "1", "-n", cwd=place, code=2).stderr
