"""`webgym curriculum` as people and scripts meet it; with browser, server and trainer it is under tests/stack."""

import json

import pytest

from tests.cli.runs import model
from tests.forked import webgym
from tests.records.builders import new_run
from webgym_cli.config.load import load
from webgym_cli.store import metrics
from webgym_cli.store.run import create_or_open
from webgym_cli.store.status import begin

PHASE = {
    **{"event": "phase", "phase": 1, "phases": 8, "iteration": 1, "version": 2, "name": "model_20250115_143022"},
    **{"new_tasks": 500, "turned_down": 61, "episodes": 500, "scored": 498, "successes": 120, "success_rate": 0.241},
}


@pytest.fixture
def settings(tmp_path):
    return ("-s", f"policy_config.base_model={model(tmp_path / 'model')}", "-s", "policy_config.template=qwen")


@pytest.fixture
def run(tmp_path, settings):
    """A run of the demonstration that is not begun."""
    return new_run(tmp_path / "run", load(["demo-webrl"], settings[1::2]))


def test_a_dry_run_tells_the_whole_plan_and_writes_nothing(tmp_path, settings):
    before = sorted(tmp_path.iterdir())
    options = ("--phases", "3", "--tasks-per-phase", "5", "--until", "0.9", "--dry-run", "--json")
    options += ("-s", "curriculum.survey_episodes=null")
    result = webgym("curriculum", "new", "-c", "demo-webrl", *settings, *options, cwd=tmp_path)
    (plan,) = map(json.loads, result.stdout.splitlines())
    assert (plan["event"], plan["stage"], plan["baseline"]) == ("plan", "curriculum", "demonstrations")
    assert (plan["demonstrations_to_do"], plan["trainings_to_do"], plan["evaluations"]) == (1, 4, [1, 2, 3, 4])
    assert (plan["tasks_per_phase"], plan["survey_episodes"], plan["score"], plan["until"]) == (5, 20, "judge", 0.9)
    assert [(phase["phase"], phase["iteration"]) for phase in plan["phases_to_do"]] == [(1, 1), (2, 2), (3, 3)]
    later = ["generate", "rollout", "score", "prepare", "train", "evaluate"]
    assert [phase["steps"] for phase in plan["phases_to_do"]] == [["survey", *later], later, later]
    assert sorted(tmp_path.iterdir()) == before


def test_resume_takes_it_up_with_its_options_and_the_run_s_numbers_of_phases_and_tasks(run, tmp_path):
    create_or_open(run, load(overrides=["curriculum.phases=5", "curriculum.tasks_per_phase=7"], run_config=run.config))
    begin(run, "curriculum", {"until": 0.5, "min_success": None, "keep_going": True})
    result = webgym("resume", "run", "--dry-run", "--json", cwd=tmp_path)
    assert "would resume `webgym curriculum`" in result.stderr
    plan = json.loads(result.stdout)
    assert (plan["stage"], plan["until"], plan["keep_going"]) == ("curriculum", 0.5, True)
    again = json.loads(webgym("curriculum", "run", "--dry-run", "--json", cwd=tmp_path).stdout)
    assert [(len(one["phases_to_do"]), one["tasks_per_phase"]) for one in (plan, again)] == [(5, 7)] * 2


def test_status_and_report_show_the_phases(run, tmp_path):
    metrics.append_event(run, PHASE)
    later = {"phase": 2, "iteration": 2, "version": 3, "new_tasks": None, "turned_down": None}
    metrics.append_event(run, PHASE | later)
    begin(run, "curriculum", {})
    record = json.loads(webgym("status", "run", "--json", cwd=tmp_path).stdout)
    assert [(phase["phase"], phase["successes"]) for phase in record["phases"]] == [(1, 120), (2, 120)]
    result = webgym("status", "run", cwd=tmp_path)
    assert [line.split("\t") for line in result.stdout.splitlines() if line.startswith("phase")] == [
        ["phase", "1", "1", "500", "61", "500", "498", "120", "2"],
        ["phase", "2", "2", "", "", "500", "498", "120", "3"],
    ]
    assert "webgym curriculum, begun" in result.stderr
    assert "next: webgym resume run" in result.stderr
    metrics.append_event(run, {"event": "phase", "phase": "two"})  # of another version
    webgym("report", "run", cwd=tmp_path)
    assert (tmp_path / "run/report.html").read_text().count("120 of 498 scored") == 2
    facts = json.loads(webgym("report", "run", "--json", cwd=tmp_path).stdout)
    assert [phase["new_tasks"] for phase in facts["phases"]] == [500, None]
