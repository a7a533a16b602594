import json

import pytest

from benchmarks import learning
from tests.tables import each
from webgym_cli.config.load import load


def row(case, seed, *successes):
    known = {"episodes": 100}
    points = [{"version": n, "successes": one, "success": one / 100, **known} for n, one in enumerate(successes)]
    return {"case": case, "seed": seed, "points": points}


def events(folder, *rows):
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"created_at": "2026-01-02T00:00:00.000+00:00"}))
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in rows))
    return folder


def rollout(episodes, split="train", event="rollout", iteration=0):
    return {"event": event, "split": split, "episodes": episodes, "iteration": iteration}


def evaluation(version, minute, rate):
    at = f"2026-01-02T00:{minute:02d}:30.000+00:00"
    known = {"episodes": 40, "success_rate": rate, "interval": [0, 1]}
    return {"event": "evaluation", "iteration": version, **known, "at": at}


def test_a_point_knows_what_was_rolled_out_for_training_until_then(tmp_path):
    result = (rollout(60), evaluation(1, 2, 0.25), rollout(30, event="survey"))
    result += (rollout(60, iteration=1), rollout(80, iteration=1), rollout(40, "test"))
    run = events(tmp_path / "run", *result, evaluation(2, 9, 0.7))
    first, second = learning.read_row(run, "demo", 7)["points"]
    assert (first["rollout_episodes"], first["minutes"], first["successes"]) == (60, 2.5, 10)
    assert (second["version"], second["rollout_episodes"], second["minutes"], second["successes"]) == (2, 170, 9.5, 28)


def test_replaced_groups_of_the_asynchronous_order_were_rolled_out_too(tmp_path):
    batch = {"event": "batch", "iteration": 1, "episodes": 80, "groups": 10, "dropped": {"no_variance": 2}}
    run = events(tmp_path / "run", rollout(60), rollout(80, iteration=1), batch, evaluation(2, 9, 0.7))
    assert learning.read_row(run, "demo", 7)["points"][0]["rollout_episodes"] == 60 + 80 + 16


def test_a_run_without_an_evaluation_is_no_row(tmp_path):
    with pytest.raises(learning.JobError, match="no version was evaluated"):
        learning.read_row(events(tmp_path / "run", rollout(60)), "demo", 7)


def test_what_unlearns_is_said_and_what_may_be_chance_is_not():
    before = [row("demo", 7, 0, 90), row("demo", 8, 0, 90), row("sums", 7, 0, 50)]
    assert list(learning.compare([row("demo", 7, 0, 88), row("demo", 8, 0, 87), row("new", 7, 0, 1)], before)) == []
    (words,) = learning.compare([row("demo", 7, 90, 70), row("demo", 8, 90, 80), row("sums", 7, 0, 49)], before)
    assert words.startswith("demo unlearned: 0.750") and "in the baseline 0.900" in words and "-0.150" in words


def test_a_run_that_stopped_is_a_row_that_says_so(tmp_path, monkeypatch):
    events(tmp_path / "demo-7", rollout(60), evaluation(1, 2, 0.25))

    def execute(*words):
        if words[0] == "loop":
            raise learning.JobError("failed", hint="webgym doctor", returncode=4)

    monkeypatch.setattr(learning, "_execute", execute)
    stopped = learning.measure(tmp_path, "demo", 7)
    assert (stopped["stopped"], len(stopped["points"])) == (4, 1)
    (words,) = learning.compare([stopped], [])
    assert words == "demo, seed 7, stopped with exit status 4"
    assert list(learning.compare([stopped], [stopped])) == []


def test_the_exit_status_tells_and_the_rows_are_json(tmp_path, monkeypatch, capsys):
    baseline = tmp_path / "baseline.jsonl"
    baseline.write_text(json.dumps(row("sums", 7, 0, 90)) + "\n")
    monkeypatch.setattr(learning, "read_baseline", lambda: [json.loads(baseline.read_text())])
    for successes, status in ((91, 0), (40, 1)):
        result = row("sums", 7, 0, successes)
        result["points"] = [of | {"interval": [0, 1], "rollout_episodes": 1, "minutes": 1.0} for of in result["points"]]
        monkeypatch.setattr(learning, "measure", lambda runs, case, seed, rows=result: rows)
        assert learning.main([str(tmp_path), "--case", "sums", "--seed", "7"]) == status
        assert json.loads(capsys.readouterr().out)["points"][-1]["successes"] == successes


@each("case", learning.CASES)
def test_each_case_has_settings_that_are_valid(case):
    _, *options = learning.CASES[case]
    configs = [options[at + 1] for at, word in enumerate(options) if word == "-c"]
    settings = [options[at + 1] for at, word in enumerate(options) if word == "-s"]
    load(configs, overrides=settings)


def test_the_committed_rows_are_of_cases_that_there_are():
    assert {item["case"] for item in learning.read_baseline()} <= set(learning.CASES)
