"""Wrong usage of each command: its exit code and one clear word; nothing on stdout, and no file."""

import json

import pytest

from tests.cli.runs import filled
from tests.curriculum.generating import failed_run
from tests.environments.webarena.webarena_records import record
from tests.forked import webgym
from tests.imports.foreign import webgym_episode, webgym_file, webgym_pictures

EXPORT = ("export-sharegpt", "run")
JUDGE = ("judge", "run", "-s", "judge.base_url=scripted")
SCORE = ("score", "run", "--orm", "m")
SAMPLE = ("tasks", "sample", "miniwob:all")
CONVERT = ("tasks", "convert", "raw.json")
WEBARENA = (*CONVERT, "--format", "webarena")
GENERATE = ("tasks", "generate", "shop/run", "-o", "new.jsonl")
PREPARE = ("prepare", "run", "--target")
LOOP = ("loop", "new", "-c", "demo")
CURRICULUM = ("curriculum", "new", "-c", "demo-webrl", "-s", "policy_config.base_model=model", "--dry-run")
HUGE = "9" * 400
NO_MODEL = ("-s", "policy_config.base_model=./modle", "-n")
REFUSED = {
    EXPORT: [
        (("nosuch",), "no trajectory 'nosuch'"),
        (("--where", "stepz > 1"), "is no condition"),
        (("--shard-size", "0"), "--shard-size"),
        (("--shard-size", "5"), "--shard-size has no effect"),
        (("--max-pairs-per-task", "5"), "--max-pairs-per-task has no effect"),
    ],
    JUDGE: [
        (("-s", "judge.votes=0"), "judge.votes"),
        (("-s", "judge.protocol=nosuch"), "judge.protocol: there is no judge protocol 'nosuch'"),
        (("nosuch",), "no trajectory 'nosuch'"),
        (("--iteration", "x"), "--iteration takes a number or all, got 'x'"),
        (("--all", "--failed"), "--failed and --all exclude each other"),
        (("--split", "nosuch"), "'nosuch'"),
        (("--precision", "0.9"), "--precision has no effect without --against"),
        (("--field", "label=verdict"), "--field has no effect without --against"),
    ],
    SCORE: [
        (("--unscored", "--all"), "--unscored and --all exclude each other"),
        (("nosuch",), "no trajectory 'nosuch'"),
        (("-s", "orm.threshold=2"), "orm.threshold"),
    ],
    ("import",): [
        (("webgym", "none", "run"), "none: no such file or folder"),
        (("webgym", "logs", "run", "-s", "seeed=1"), "seeed"),
        (("webgim", "logs", "run"), "did you mean webgym?"),
        (("agentlab", "logs", "run"), "there is no import format 'agentlab'"),
        (("webgym", "logs", "run", "--iteration", "-1"), "'--iteration'"),
    ],
    ("tasks", "check"): [
        ((), "Missing argument"),
        (("none.jsonl",), "none.jsonl: the task file can't be read: No such file"),
        ((".",), "can't be read: Is a directory"),
    ],
    ("tasks", "sample"): [
        (("none.jsonl",), "none.jsonl: the task file can't be read"),
        (("miniwob:nosuch",), "MiniWoB has no page 'nosuch'"),
    ],
    SAMPLE: [
        (("-n", "0"), "-n"),
        (("--ratio", "easy"), "--ratio: 'easy' is no band"),
        (("--ratio", "mild=2"), "--ratio: 'mild=2' is no band"),
        (("--ratio", "easy=nan"), "--ratio: 'easy=nan' is no band"),
        (("--ratio", "easy=-1"), "--ratio: 'easy=-1' is no band"),
        (("--ratio", "easy=0"), "no weight is above 0"),
        (("--ratio", "hard=1"), "no task may be drawn in the bands of the ratio: hard"),
        (("--ratio", "easy=1", "--sampler", "uniform"), "the sampler uniform has no ratio"),
        (("--sampler", "ratio"), "--sampler ratio needs weights"),
        (("--band", "hard"), "no task is left that may be drawn"),
        (("--exclude-site", "/"), "--exclude-site: '/' is no site"),
        (("-s", "tasks.sampler=ratio"), 'sampler "ratio" needs difficulty_ratio'),
        (("-s", "tasks.difficulty_ratio.easy=-1"), "tasks.difficulty_ratio.easy"),
    ],
    CONVERT: [
        ((), "--format"),
        (("--field", "name=task_id"), "--field name"),
        (("--field", "instruction=intent", "--field", "rubric=facts"), "--field rubric=facts"),
        (("--field", "instruction=intent", "--site", "shop=http://a.test"), "--site"),
        (("--format", "other"), "--format"),
    ],
    WEBARENA: [
        ((), "__SHOPPING__ is not known (--site shopping=http://HOST:PORT)"),
        (("--field", "id=task_id"), "--field"),
        (("--site", "bank=http://a.test"), "--site: 'bank=http://a.test' is no site"),
        (("--site", "map"), "--site: 'map' is no site with its address"),
        (("--site", "map=host:3"), "--site: 'map=host:3' is no site"),
    ],
    ("tasks", "convert", "none.json", "--format", "webarena"): [((), "none.json: can't be read")],
    ("tasks", "generate", "shop/run"): [((), "--out")],
    GENERATE: [
        ((), "generate.base_url is empty"),
        (("-s", "generate.base_url=nosuch"), "generate.base_url: 'nosuch' is no http(s)"),
        (("-s", "generate.critic_window=[0.7,0.2]"), "critic_window: the first"),
        (("-s", "generate.base_url=scripted", "-s", "generate.critic=orm"), "orm.base_url and orm.model are empty"),
    ],
    ("report", "run"): [(("--gpus", HUGE), "--gpus"), (("--html", "-"), "-: this output is a file")],
    ("inspect-buffer", "run"): [((option, HUGE), option) for option in ("--top", "--iteration")],
    ("eval", "oracle"): [(("-b", ""), "-b")],
    ("init-model", "tiny", "run"): [((), "the run")],
    ("rollout", "new", "-c", "demo"): [(NO_MODEL, "./modle")],
    ("prepare", "run"): [(("-s", 'filters.difficulties=["huge"]'), "filters.difficulties")],
    PREPARE: [
        (("critic",), "--target"),
        (("orm", "-s", 'orm.labels=["me"]'), "orm.labels"),
        (("orm", "-s", "orm.labels=[]"), "orm.labels"),
    ],
    LOOP: [
        (("--phase", "neither"), "--phase"),
        (("--until", "2"), "--until"),
        (("--iterations", "0"), "--iterations"),
        (("--iterations", HUGE), "--iterations"),
        (NO_MODEL, "./modle"),
    ],
    CURRICULUM: [
        (("--phases", "0"), "--phases"),
        (("--phases", HUGE), "curriculum.phases"),
        (("--tasks-per-phase", "0"), "--tasks-per-phase"),
        (("-s", "curriculum.score=nobody"), "curriculum.score"),
        (("-s", "curriculum.score=orm"), "orm.base_url and orm.model are empty"),
        (("-s", "curriculum.score=orm", "-s", "orm.model=m"), "judge.base_url names a judge, whose verdicts"),
        (("-s", "curriculum.score=environment"), "no environment can tell whether a new task was done"),
        (("-s", "generate.base_url="), "generate.base_url is empty"),
        (("-s", "judge.base_url="), "there is no judge to ask"),
        (("-s", "tasks.train=nowhere.jsonl"), "nowhere.jsonl"),
        (("-s", "tasks.train=arithmetic:train"), "its tasks are of tools; new ones can be made of tasks on the web"),
    ],
}
TELLS_FIRST = {("tasks", "check")}
"""Commands that tell what they would do, or have found, before they refuse it."""
MISSING = [(*JUDGE, "--iteration", "9"), (*JUDGE, "--split", "test"), ("tasks", "generate", "none", "-o", "new.jsonl")]
CASES = [((*command, *more), 2, word) for command, rows in REFUSED.items() for more, word in rows]
CASES += [(words, 3, "next: webgym rollout") for words in MISSING]
CASES.append((("train", "run"), 3, "next: webgym prepare"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run, one of a shop with failed tasks, episodes of WebGym's, and raw tasks of WebArena's."""
    folder = tmp_path_factory.mktemp("place")
    filled(folder)
    (folder / "shop").mkdir()
    failed_run(folder / "shop")
    webgym_pictures(folder / "logs", "one", steps=2)
    webgym_file(folder / "logs", [webgym_episode("one")])
    (folder / "raw.json").write_text(json.dumps([record(task_id=1)]))
    return folder


def list_files(place):
    """Return all files with their times, but for what a look at a run may leave: its index, and locks."""
    kept = (path for path in place.rglob("*") if path.is_file())
    return {
        path: path.stat().st_mtime_ns for path in kept if "index.parquet" not in path.parts and ".lock" not in path.name
    }


@pytest.mark.parametrize(("words", "code", "word"), CASES)
def test_it_is_refused_with_a_word_and_writes_nothing(place, words, code, word):
    before = list_files(place)
    result = webgym(*words, cwd=place, code=code)
    assert list_files(place) == before
    assert not result.stdout or words[:2] in TELLS_FIRST
    assert word in " ".join(result.stderr.replace("│", " ").split())
