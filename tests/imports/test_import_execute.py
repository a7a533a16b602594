"""Storing what was read: once, with its pictures, or not at all."""

from dataclasses import replace

import pytest

from tests.imports.foreign import REFUTED, SUCCEEDED, webgym_episode, webgym_file, webgym_pictures, webrl_episode
from tests.imports.test_webgym_import import sent, with_prompts
from tests.records.builders import png
from webgym_cli.agent.prompt import render_step
from webgym_cli.config.load import load
from webgym_cli.errors import UsageError
from webgym_cli.imports import execute
from webgym_cli.imports.execute import Importer
from webgym_cli.imports.plan import format_import, plan_import, require_imported
from webgym_cli.imports.registry import IMPORT_FORMATS
from webgym_cli.imports.source import ImportFormat
from webgym_cli.prepare.sft.plan import plan_dataset
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.task import Split
from webgym_cli.store.buffer import read_judgements, scan, scan_stored
from webgym_cli.store.checkpoints import version
from webgym_cli.store.index.query import open_index
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore

ONE, TWO, BLOCKED = "task_0000_ab", "task_0001_cd", "task_0002_ef"


@pytest.fixture
def logs(tmp_path):
    """WebGym's folder: a success, a failure and an episode whose site blocked it."""
    root = tmp_path / "logs"
    webgym_pictures(root, ONE, TWO, BLOCKED)
    episodes = [
        webgym_episode(ONE),
        webgym_episode(TWO, REFUTED),
        webgym_episode(BLOCKED, {**SUCCEEDED, "reward": 0, "is_blocked": True}),
    ]
    webgym_file(root, episodes)
    return root


def bring(run, path, name="webgym", dry=False, **options):
    events = []
    return Importer(plan_import(run, name, path, **options), run, events.append, dry=dry).execute(), events


def ids(run, split=Split.TRAIN, iteration=0):
    return [trajectory.id for trajectory in scan_stored(run, split, iteration)]


def files(root):
    """Return all files but those of the index."""
    return {path: path.read_bytes() for path in root.rglob("*.*") if path.is_file() and ".parquet" not in str(path)}


def test_iterations_stay_iterations_and_the_last_four_count(run, tmp_path):
    logs = tmp_path / "logs"
    webgym_pictures(logs, *(f"task_{number:04d}_ab" for number in (2, 9, 10, 11, 12)))
    for number in (2, 9, 10, 11, 12):
        name = f"train_trajectories/train_trajectories.pt.iteration{number}"
        webgym_file(logs, [webgym_episode(f"task_{number:04d}_ab", trajectory_index=number)], name=name)
    summary, _ = bring(run, logs)
    assert (summary["imported"], summary["iteration"], version(run)) == (5, 12, 12)
    assert run.list_iterations(Split.TRAIN) == [2, 9, 10, 11, 12]
    with open_index(run) as index:
        assert plan_dataset(run, load(), index).to_json()["iterations_read"] == [9, 10, 11, 12]
    # the same again, as after an interruption, adds nothing and changes nothing
    assert bring(run, logs)[0]["skipped"] == {"already_imported": 5}
    assert version(run) == 12


def test_a_run_with_episodes_of_its_own_keeps_its_version(run, logs):
    run.plan(Split.TRAIN, 0).parent.mkdir(parents=True, exist_ok=True)
    run.plan(Split.TRAIN, 0).touch()
    with pytest.raises(UsageError, match="its train iteration 0 is a rollout's") as refused:
        bring(run, logs)
    assert "--iteration 1" in refused.value.hint
    assert bring(run, logs, split=Split.TEST, dry=True)[0]["imported"] == 3
    assert bring(run, logs, iteration=1)[0]["iteration"] == 1
    assert version(run) == 0


def test_a_reply_is_trained_under_the_prompt_that_it_was_given_to(run, tmp_path):
    logs = tmp_path / "logs"
    webgym_pictures(logs, ONE)
    first = [{"role": "system", "content": "Theirs."}, sent(0, "Task: when?")]
    webgym_file(logs, [with_prompts(first, [*first, sent("I click.", role="assistant"), sent(1)])])
    bring(run, logs)
    (trajectory,) = scan(run, Split.TRAIN, 3)
    prompt = render_step(trajectory, 1)
    assert [message.content for message in prompt.messages] == ["Theirs.", "<image>Task: when?", "I click.", "<image>"]
    assert prompt.images == tuple(step.observation.screenshot.sha256 for step in trajectory.steps)
    assert [render_step(trajectory, at).digest for at in (0, 1)] == [step.prompt_digest for step in trajectory.steps]


def test_episodes_are_stored_with_their_pictures_and_verdicts(run, logs):
    summary, events = bring(run, logs)
    counts = {"imported": 3, "solved": 1, "judged": 2, "steps": 6, "new_images": 6, "failures": {"site_blocked": 1}}
    assert {**counts, "skipped": {}}.items() <= summary.items()
    solved, refuted, blocked = scan(run, Split.TRAIN, 3)
    assert [one.outcome.reward for one in (solved, refuted, blocked)] == [1.0, 0.0, None]
    assert blocked.outcome.failure is FailureKind.SITE_BLOCKED
    assert [(score.source, score.value, score.detail) for score in solved.outcome.scores] == [("judge", 1.0, "gpt")]
    assert solved.id.startswith("train-0003-webgym-")
    picture = solved.steps[1].observation.screenshot
    assert (picture.width, picture.height) == (64, 48)
    assert ScreenshotStore(run.screenshots).get(picture.sha256) == png(1, 64, 48)
    assert [step.page_changed for step in solved.steps] == [False, None]
    assert set(read_judgements(run, Split.TRAIN, 3)) == {solved.id, refuted.id}
    assert events[-1]["done"] == events[-1]["total"] == 1
    assert format_import(summary) == ("imported 3: 1 solved, 1 failed by their infrastructure, 6 steps, 6 new images")


def test_the_same_import_adds_nothing_whatever_the_iteration_and_copies_of_an_episode_are_one(run, logs):
    again = (logs / "train_trajectories" / "train_trajectories.pt.iteration3").read_bytes()
    (logs / "train_trajectories" / "train_trajectories.pt.iteration3_rank_0.checkpoint").write_bytes(again)
    summary, _ = bring(run, logs)
    assert (summary["imported"], summary["skipped"], len(ids(run, iteration=3))) == (3, {"already_imported": 3}, 3)
    before = files(run.root)
    for options in ({}, {"iteration": 5}, {"split": Split.TEST}):
        summary, _ = bring(run, logs, **options)
        assert (summary["imported"], summary["skipped"]) == (0, {"already_imported": 6})
    assert files(run.root) == before


def test_an_interrupted_import_goes_on_where_it_stopped(run, logs, monkeypatch):
    append, written = execute.append, []

    def stop(*arguments):
        if written:
            raise KeyboardInterrupt
        written.append(arguments)
        append(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(execute, "append", stop)
        bring(run, logs)
    assert len(ids(run, iteration=3)) == 1
    summary, _ = bring(run, logs)
    assert (summary["imported"], summary["skipped"]) == (2, {"already_imported": 1})
    assert [one.outcome.reward for one in scan(run, Split.TRAIN, 3)] == [1.0, 0.0, None]


def test_an_episode_without_a_picture_comes_when_the_picture_does(run, logs):
    picture = logs / "images" / TWO / "step_001.png"
    kept = picture.read_bytes()
    picture.unlink()
    summary, _ = bring(run, logs)
    assert (summary["imported"], summary["skipped"]) == (2, {"screenshot_missing": 1})
    assert f"{picture}: not there" in summary["examples"]["screenshot_missing"][0]
    picture.write_bytes(kept)
    summary, _ = bring(run, logs)
    assert (summary["imported"], summary["skipped"]) == (1, {"already_imported": 2})


def test_a_dry_run_counts_the_same_and_writes_nothing(logs, tmp_path):
    nowhere = RunDir(tmp_path / "new")
    summary, _ = bring(nowhere, logs, dry=True)
    assert (summary["dry_run"], summary["imported"], summary["new_images"]) == (True, 3, 6)
    assert not nowhere.root.exists()


def test_files_that_cant_be_read_do_not_stop_the_others(run, logs):
    (logs / "train_trajectories" / "train_trajectories.pt.iteration1").write_bytes(b"cos\nsystem\n(S'x'\ntR.")
    summary, events = bring(run, logs)
    assert (summary["imported"], summary["skipped"]) == (3, {"unreadable_file": 1})
    assert [event["event"] for event in events if "message" in event] == ["unreadable"]
    with pytest.raises(UsageError, match=r"iteration1: .*'os\.system'"):
        require_imported(summary, plan_import(run, "webgym", logs))


def test_an_import_of_nothing_is_an_error_that_says_why(run, tmp_path):
    plan = plan_import(run, "webgym", webgym_file(tmp_path / "x", [webgym_episode()]))
    summary = Importer(plan, run, lambda event: None).execute()
    with pytest.raises(UsageError, match=r"nothing .*: 1 x screenshot_missing") as refused:
        require_imported(summary, plan)
    assert "--images" in refused.value.hint


def test_auto_finds_whose_files_they_are(run, logs, tmp_path):
    webrl = webrl_episode(tmp_path / "webrl", "12", ['do(action="Go Backward")'])
    marks = webrl_episode(tmp_path / "vab", "12", ["click [3] where [3]"], trace=False)
    names = [plan_import(run, "auto", path).name for path in (logs, webrl, marks)]
    assert names == ["webgym", "webrl", "visualagentbench"]
    assert plan_import(run, "auto", webrl / "traces" / "12.jsonl").name == "webrl"
    (tmp_path / "renamed").write_bytes(next(logs.rglob("*.iteration3")).read_bytes())
    assert plan_import(run, "auto", tmp_path / "renamed").name == "webgym"
    with pytest.raises(UsageError, match="nothing that can be imported"):
        plan_import(run, "auto", run.root)


def test_bad_places_are_named(run, tmp_path, logs):
    with pytest.raises(UsageError, match="no such file or folder"):
        plan_import(run, "webgym", tmp_path / "none")
    with pytest.raises(UsageError, match="no such folder"):
        plan_import(run, "webgym", logs, images=tmp_path / "none")
    with pytest.raises(UsageError, match="it takes a folder of a rollout with traces/"):
        plan_import(run, "webrl", logs)


def test_a_registered_format_is_found_by_name_and_before_the_built_in_ones(run, logs, monkeypatch):
    import_format = ImportFormat(lambda path: [path / "x"] if path.is_dir() else [], lambda *_: iter(()), "folders")
    monkeypatch.setitem(IMPORT_FORMATS.registered, "folders", import_format)
    for name in ("folders", "auto"):
        assert plan_import(run, name, logs).format is import_format
    assert plan_import(run, "auto", next(logs.rglob("*.iteration3"))).name == "webgym"
    assert bring(run, logs, "auto")[0]["imported"] == 0
    broken = replace(import_format, read=lambda *_: iter([{}["page"]]))
    monkeypatch.setitem(IMPORT_FORMATS.registered, "folders", broken)
    assert bring(run, logs, "folders")[0]["skipped"] == {"unreadable_file": 1}
    with pytest.raises(UsageError, match="taken"):
        IMPORT_FORMATS.register("webgym", import_format)


@pytest.mark.parametrize("name", ["webrl", "visualagentbench"])
def test_one_rollout_is_one_import_by_either_name(run, tmp_path, name):
    root = webrl_episode(tmp_path / "r", "12", ['do(action="Click", element="3")', 'exit(message="x")'])
    summary, _ = bring(run, root, name)
    assert (summary["imported"], summary["steps"]) == (1, 2)
    other = {"webrl": "visualagentbench", "visualagentbench": "webrl"}[name]
    assert bring(run, root, other)[0]["skipped"] == {"already_imported": 1}
    (trajectory,) = scan(run, Split.TEST, 0)
    assert [step.page_changed for step in trajectory.steps] == [True, None]
    assert trajectory.outcome.success is True
