"""Episodes of another run of webgym: as they are stored there, with judgements and pictures, and each once."""

import pytest

from tests.imports.test_import_execute import bring, files
from tests.prepare.export.test_shards import recode, webp
from tests.records.builders import CRASHED, UNSOLVED, new_run, png, store_images, trajectory
from tests.records.test_judgement import judgement
from webgym_cli.config.load import load
from webgym_cli.errors import UsageError
from webgym_cli.imports.execute import Importer
from webgym_cli.imports.plan import plan_import, require_imported
from webgym_cli.prepare.sft.plan import plan_dataset
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Outcome
from webgym_cli.store.buffer import append, append_judgement, scan, scan_stored
from webgym_cli.store.checkpoints import version
from webgym_cli.store.index.query import open_index
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.util.files import write_lines

WEB = Task(id="w", instruction="Buy it.", start_url="https://a.example", environment="web")


@pytest.fixture
def origin(tmp_path):
    """A run with a success, a failed try, an episode that a judge decided, in two iterations, and a test episode."""
    run = new_run(tmp_path / "origin")
    judged = trajectory(3, iteration=1, steps=3, task=WEB, outcome=Outcome(answer="Bought.", stop="answered"))
    for one in (
        trajectory(0),
        trajectory(1, outcome=CRASHED),
        trajectory(2, outcome=UNSOLVED, attempt=1),
        judged,
        trajectory(4, split=Split.TEST, outcome=UNSOLVED),
    ):
        store_images(run, one)
        append(run, one)
    for success, day in ((False, 1), (True, 2)):
        moment = f"2026-01-0{day}T00:00:00.000+00:00"
        append_judgement(run, Split.TRAIN, 1, judgement(trajectory=judged.id, success=success, judged_at=moment))
    return run


@pytest.mark.parametrize("name", ["run", "auto"])
def test_episodes_come_with_their_judgements_and_pictures_and_keep_their_iterations(origin, run, name):
    before = files(origin.root)
    summary, _ = bring(run, origin.root, name)
    counts = {"imported": 5, "solved": 2, "judged": 1, "failures": {"browser_crashed": 1}, "new_images": 3}
    assert counts.items() <= summary.items()
    assert (version(run), run.list_iterations(Split.TRAIN)) == (1, [0, 1])
    (judged,) = scan(run, Split.TRAIN, 1)
    (theirs,) = scan(origin, Split.TRAIN, 1)
    assert (judged.outcome, judged.steps, judged.task) == (theirs.outcome, theirs.steps, theirs.task)
    assert judged.outcome.success
    assert ScreenshotStore(run.screenshots).get(judged.steps[2].observation.screenshot.sha256) == png(2)
    with open_index(run) as index:
        assert plan_dataset(run, load(), index).to_json()["iterations_read"] == [0, 1]
    assert files(origin.root) == before, "nothing is written into the other run"


def test_a_repeated_import_adds_nothing_also_there_and_back(origin, run):
    bring(run, origin.root, "run")
    stored = files(run.root)
    assert bring(run, origin.root, "run", iteration=7)[0]["skipped"] == {"already_imported": 5}
    assert bring(origin, run.root, "run", iteration=7)[0]["skipped"] == {"already_imported": 5}
    assert files(run.root) == stored


def test_attempts_that_one_file_brought_into_the_origin_are_episodes_of_their_own(origin, run, tmp_path):
    """They have time, seed and number of steps in common: only the first of each task was imported."""
    turns = [{"role": "user", "content": "How much?"}, {"role": "assistant", "content": "39"}]
    write_lines(tmp_path / "given.jsonl", ({"messages": turns, "reward": reward} for reward in (0.0, 1.0)))
    assert bring(origin, tmp_path / "given.jsonl", "messages")[0]["imported"] == 2
    assert bring(run, origin.root, "run")[0]["imported"] == 7
    for path, name in ((origin.root, "run"), (tmp_path / "given.jsonl", "messages")):
        assert bring(run, path, name, iteration=7)[0]["imported"] == 0
    assert bring(origin, run.root, "run", iteration=7)[0]["skipped"] == {"already_imported": 7}


@pytest.mark.parametrize(
    ("where", "imported", "newest"),
    [("success", 2, 1), ("iteration = 0 AND split = 'train' AND failure IS NULL", 2, 0), ("task = 'w'", 1, 1)],
)
def test_a_condition_selects_the_episodes(origin, run, where, imported, newest):
    summary, _ = bring(run, origin.root, "run", where=where)
    assert (summary["imported"], summary["iteration"], version(run)) == (imported, newest, newest)
    plan = plan_import(run, "run", origin.root, where="task = 'z'", iteration=7)
    with pytest.raises(UsageError, match="--where"):
        require_imported(Importer(plan, run, lambda event: None).execute(), plan)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("run", {"where": "no_such_column"}, "no condition on trajectories"),
        ("run", {"where": "success); DROP TABLE x"}, "no condition"),
        ("run", {"where": "id::INTEGER = 1"}, "the condition on trajectories fails at a row: Conversion Error"),
        ("webgym", {"where": "success"}, "takes no condition"),
    ],
)
def test_what_is_no_condition_is_refused(origin, run, tmp_path, name, options, message):
    (tmp_path / "a.pt.iteration1").touch()
    path = origin.root if name == "run" else tmp_path / "a.pt.iteration1"
    with pytest.raises(UsageError, match=message):
        plan_import(run, name, path, **options)


def test_the_runs_own_episodes_and_an_empty_run_are_refused(origin, run):
    with pytest.raises(UsageError, match="own episodes"):
        plan_import(origin, "run", origin.root)
    with pytest.raises(UsageError, match="nothing of the format run"):
        plan_import(origin, "run", run.root)


def test_a_missing_picture_or_pages_of_another_form_leave_an_episode_out(origin, run, tmp_path):
    images = ScreenshotStore(origin.screenshots)
    (judged,) = scan_stored(origin, Split.TRAIN, 1)
    images.png(judged.steps[2].observation.screenshot.sha256).unlink()
    assert bring(run, origin.root, "run", dry=True)[0]["skipped"] == {"screenshot_missing": 1}
    texts = load(overrides=["context_config.prompt_version=webrl"])
    reader = new_run(tmp_path / "reader", texts)
    prompt = judged.prompt.model_copy(update={"version": "webrl"})
    assert bring(reader, origin.root, "run", prompt=prompt)[0]["skipped"] == {"not_understood": 5}


def test_recoded_pictures_are_copied_as_they_are(origin, run):
    (judged,) = scan_stored(origin, Split.TRAIN, 1)
    sha256 = judged.steps[0].observation.screenshot.sha256
    theirs = ScreenshotStore(origin.screenshots)
    recode(theirs, sha256, webp(0))
    bring(run, origin.root, "run")
    images = ScreenshotStore(run.screenshots)
    assert images.get(sha256) == theirs.get(sha256) == webp(0)
    assert images.path(sha256).suffix == ".webp"
