"""The index follows the truth: what was appended, judged, damaged, replaced; and it can be thrown away at any time."""

import hashlib
import json
import os
import subprocess
import sys
from datetime import datetime
from itertools import product

import pytest

from tests.records.builders import CRASHED, SOLVED, UNSOLVED, new_run, step, trajectory
from tests.tables import each
from webgym_cli.errors import StoreError, UsageError
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.judgement import Judgement, Verdict
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Generation, Outcome, Score, Trajectory
from webgym_cli.store.buffer import append, append_judgement, prefetch, read, scan
from webgym_cli.store.index import arrow, build, fragments
from webgym_cli.store.index.build import plan_index, rebuild, update
from webgym_cli.store.index.fragments import ByteRange, Catalog, find_covering
from webgym_cli.store.index.query import open_index, refresh_index
from webgym_cli.store.index.schema import FORMAT, TABLES
from webgym_cli.store.run import RunDir

WEB = Task(id="shop", start_url="https://shop.example.co.uk/a", environment="web", difficulty=5, rubric=("a fact",))
OPEN = Outcome(stop=Stop.ANSWERED, answer="42")


def judgement(of: Trajectory, success: bool | None, at: int, **changes: object) -> Judgement:
    values = {"trajectory": of.id, "models": {"verdict": "a-judge"}, "settings_digest": "0" * 64, "success": success}
    values["failure"] = FailureKind.JUDGE_FAILED if success is None else None
    return Judgement.model_validate(values | {"judged_at": f"2026-02-03T04:05:{at:02d}.000+00:00"} | changes)


def fill(run: RunDir, count: int, first: int = 0) -> None:
    """Store so many solved episodes."""
    for number in range(first, first + count):
        append(run, trajectory(number))


def outcomes(run: RunDir) -> dict[str, tuple[object, ...]]:
    with open_index(run) as index:
        rows = index.rows("SELECT id, reward, failure, success FROM trajectories ORDER BY id")
        return {row["id"]: (row["reward"], row["failure"], row["success"]) for row in rows}


def count_rows(run: RunDir, table: str) -> int:
    with open_index(run) as index:
        return index.one(f"SELECT count(*) AS n FROM {table}")["n"]


def scanned(run: RunDir) -> dict[str, tuple[object, ...]]:
    items = [item for split, iteration in product(Split, (0, 1)) for item in scan(run, split, iteration)]
    ended = {item.id: item.outcome for item in items}
    return {name: (of.reward, of.failure and of.failure.value, of.success) for name, of in ended.items()}


def test_several_runs_are_one_table_and_judgements_stay_in_theirs(tmp_path):
    first, second, empty = (new_run(tmp_path / name) for name in "abc")
    episode = trajectory(0, task=WEB, outcome=OPEN)
    for run in (first, second):
        append(run, episode)
    append_judgement(second, Split.TRAIN, 0, judgement(episode, True, 1))
    with open_index(first, empty, second, second) as index:
        rows = list(index.rows("SELECT run, id, success, judged_by FROM trajectories ORDER BY run"))
        steps = index.one("SELECT count(*) AS n, count(DISTINCT run) AS runs FROM steps")
    shown = [(row["run"], row["success"], row["judged_by"]) for row in rows]
    assert shown == [(str(first.root), None, None), (str(second.root), True, "judge")]
    assert {row["id"] for row in rows} == {episode.id}
    assert steps == {"n": 4, "runs": 2}


def chain_of(run: RunDir) -> list[ByteRange]:
    return Catalog(run).chain(fragments.list_sources(run)[0])


def main_files(run: RunDir) -> list[str]:
    return sorted(path.name for path in (fragments.fragments_folder(run) / "trajectories").glob("*.parquet"))


def test_a_row_tells_what_the_line_says(run):
    outcome = Outcome(reward=1.0, stop=Stop.ANSWERED, answer="42", scores=(Score(source="environment", value=0.5),))
    episode = trajectory(7, iteration=1, task=WEB, outcome=outcome, split=Split.TEST, attempt=2)
    append(run, episode)
    with open_index(run) as index:
        (row,) = index.rows("SELECT * FROM trajectories")
        steps = list(index.rows("SELECT * FROM steps ORDER BY step"))
    assert (row["id"], row["split"], row["iteration"], row["attempt"]) == ("test-0001-00007", "test", 1, 2)
    assert (row["task"], row["task_key"], row["site"], row["band"]) == ("shop", WEB.key, "example.co.uk", "medium")
    assert (row["reward"], row["success"], row["answer"], row["environment_reward"]) == (1.0, True, "42", 0.5)
    assert (row["steps"], row["stop"], row["failure"], row["judged"]) == (2, "answered", None, None)
    assert row["started_at"] == datetime(2026, 1, 2, 3, 4, 5)
    assert [step["step"] for step in steps] == [0, 1]
    assert steps[1]["screenshot"] == episode.steps[1].observation.screenshot.sha256
    assert (steps[0]["action"], steps[0]["page_changed"], steps[0]["page_site"]) == ("click", True, "a")


def test_an_index_of_another_version_is_built_anew(run, monkeypatch):
    append(run, trajectory(0, sampling=Sampling(temperature=0)))
    with monkeypatch.context() as before:
        before.setattr(fragments, "FORMAT", FORMAT - 1)
        columns = {name: kind for name, kind in TABLES["trajectories"].items() if name != "sampling"}
        before.setitem(TABLES, "trajectories", columns)  # `delitem` would put the column back as the last one
        update(run)
        assert all(plan.idle for plan in plan_index(run))
    with open_index(run) as index:
        assert index.one("SELECT sampling.temperature AS t FROM trajectories") == {"t": 0.0}


def test_other_columns_need_another_version():
    digest = hashlib.sha256(json.dumps(TABLES).encode()).hexdigest()[:12]
    assert (FORMAT, digest) == (12, "e0cef5c82768"), "an index of the version before lacks these columns: raise FORMAT"


def test_only_what_was_appended_is_read_and_nothing_is_written_when_nothing_was(run, monkeypatch):
    fill(run, 3)
    update(run)
    before = {path: path.stat().st_mtime_ns for path in run.index.rglob("*")}
    update(run)
    assert {path: path.stat().st_mtime_ns for path in run.index.rglob("*")} == before
    assert all(plan.idle for plan in plan_index(run))
    append(run, trajectory(3, outcome=UNSOLVED))
    (plan,) = plan_index(run)
    assert plan.new.start == chain_of(run)[-1].end > 0
    seen = []
    monkeypatch.setattr(build, "add_line", lambda run, source, raw, *rest: seen.append(json.loads(raw)["id"]))
    update(run)
    assert seen == ["train-0000-00003"]


JUDGED = [
    (OPEN, WEB),
    (SOLVED, WEB),
    (CRASHED, WEB),
    (UNSOLVED, Task(id="click-test")),
    (Outcome(failure=FailureKind.JUDGE_FAILED, failure_detail="odd"), WEB),
    (Outcome(failure=FailureKind.SITE_BLOCKED), WEB),
    (Outcome(reward=0.0, stop=Stop.ANSWERED, scores=(Score(source="environment", value=0.0),)), WEB),
    (Outcome(stop=Stop.TERMINATED), WEB),
    (Outcome(stop=Stop.ANSWERED, success_threshold=5.0), WEB),
    (Outcome(reward=2.0, success_threshold=5.0, scores=(Score(source="environment", value=2.0),)), WEB),
]
DOWN = "down"
VERDICTS = [(), (True,), (False,), (None,), (True, False), (False, True), (True, None), (None, False), (None, None)]
VERDICTS += [(None, DOWN), (DOWN, None), (True, DOWN)]


def test_the_newest_judgement_counts_just_as_for_the_records(run):
    for number, ((outcome, task), verdicts) in enumerate(product(JUDGED, VERDICTS)):
        episode = trajectory(number, outcome=outcome, task=task)
        append(run, episode)
        for at, verdict in reversed(list(enumerate(verdicts))):  # the file's order is not the order of judging
            down = verdict == DOWN
            given = judgement(episode, None if down else verdict, at, unavailable=down)
            append_judgement(run, Split.TRAIN, 0, given)
    append(run, trajectory(1, iteration=1, outcome=OPEN, task=WEB))
    assert outcomes(run) == scanned(run)
    with open_index(run) as index:
        records = [read(run, place) for place in index.places()]
    assert records == [*scan(run, Split.TRAIN, 0), *scan(run, Split.TRAIN, 1)]


def test_of_judgements_of_one_moment_the_last_one_written_counts(run):
    episode = trajectory(0, outcome=OPEN, task=WEB)
    append(run, episode)
    for verdict, rank in ((True, 0), (False, 0), (True, 1)):
        append_judgement(run, Split.TRAIN, 0, judgement(episode, verdict, 1), rank)
        assert outcomes(run) == scanned(run)
    assert outcomes(run)[episode.id] == (1.0, None, True)


def test_agreement_is_the_smallest_share_of_votes_for_the_decision(run):
    episode = trajectory(0, outcome=OPEN, task=WEB)
    append(run, episode)
    facts = (
        Verdict(question="a", passed=True, votes=(True, True, True, False)),
        Verdict(question="b", passed=False, votes=(False, True, False)),
        Verdict(question="c", passed=True),
    )
    append_judgement(run, Split.TRAIN, 0, judgement(episode, False, 0, facts=facts))
    with open_index(run) as index:
        row = index.one("SELECT agreement, votes, judge_model FROM trajectories")
    assert row == {"agreement": pytest.approx(2 / 3), "votes": 3, "judge_model": "a-judge"}


@pytest.mark.parametrize("size", [0, 1, 4, 100])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_that_is_still_being_written_waits_and_one_without_its_end_is_whole(run, size, end, monkeypatch):
    monkeypatch.setattr(build, "_BLOCK", 16)
    append(run, trajectory(0))
    whole = trajectory(1).to_line().encode() + end
    with run.part(Split.TRAIN, 0).open("ab") as file:
        file.write(whole[:size])
        file.flush()
        assert list(outcomes(run)) == ["train-0000-00000"]
        file.write(whole[size:])
    assert len(outcomes(run)) == 2
    append(run, trajectory(2))
    assert len(outcomes(run)) == 3 == len(scanned(run))


def test_a_file_that_shrank_or_was_replaced_is_read_anew(run):
    fill(run, 4)
    update(run)
    part = run.part(Split.TRAIN, 0)
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:2]))
    assert list(outcomes(run)) == ["train-0000-00000", "train-0000-00001"]
    part.write_bytes(b"".join(line.replace(b"click-test", b"other-test") for line in lines))
    events = []
    update(run, events.append)
    assert [event["event"] for event in events] == ["index", "index_progress"]
    assert count_rows(run, "trajectories WHERE task = 'other-test'") == 4


@pytest.mark.parametrize("table", ["trajectories", "steps", "damage"])
@pytest.mark.parametrize("harm", ["cut", "gone", "empty", "zeros"])
def test_a_fragment_that_is_cut_off_or_gone_is_made_again(run, table, harm):
    append(run, trajectory(0))
    update(run)
    (fragment,) = (fragments.fragments_folder(run) / table).glob("*.parquet")
    content = fragment.read_bytes()
    fragment.write_bytes({"cut": content[: len(content) // 2], "zeros": bytes(len(content))}.get(harm, b""))
    if harm == "gone":
        fragment.unlink()
    assert (count_rows(run, "steps"), count_rows(run, "trajectories")) == (2, 1)


def test_a_fragment_with_a_flipped_byte_is_made_again(run):
    fill(run, 50)
    update(run)
    (fragment,) = (fragments.fragments_folder(run) / "trajectories").glob("*.parquet")
    content = bytearray(fragment.read_bytes())
    content[len(content) // 4] ^= 0xFF
    fragment.write_bytes(content)
    assert len(outcomes(run)) == 50
    assert fragment.read_bytes() != content


def test_a_fragment_that_is_harmed_during_a_query_is_an_error_that_names_the_way_out(run):
    fill(run, 50)
    with open_index(run) as index:
        (fragment,) = (fragments.fragments_folder(run) / "trajectories").glob("*.parquet")
        fragment.write_bytes(b"PAR1")
        with pytest.raises(StoreError) as failure:
            list(index.rows("SELECT * FROM stored"))
    assert "--reindex" in failure.value.hint
    rebuild(run)
    assert len(outcomes(run)) == 50


def test_fragments_are_joined_so_that_there_are_few_of_them(run):
    for number in range(40):
        append(run, trajectory(number))
        update(run)
    chain = chain_of(run)
    assert len(chain) <= 6
    assert chain[-1].end == run.part(Split.TRAIN, 0).stat().st_size
    assert (len(outcomes(run)), count_rows(run, "steps")) == (40, 80)


def test_replaced_fragments_go_after_a_while(run, monkeypatch):
    for number in range(8):
        append(run, trajectory(number))
        update(run)
    assert len(main_files(run)) > len(chain_of(run))
    monkeypatch.setattr(build, "_KEEP_SECONDS", -1.0)
    append(run, trajectory(8))
    update(run)
    assert len(main_files(run)) == len(chain_of(run))
    assert len(outcomes(run)) == 9


def test_a_large_file_is_read_in_pieces(run, monkeypatch):
    monkeypatch.setattr(build, "_CHUNK", 1000)
    for number in range(10):
        append(run, trajectory(number, outcome=UNSOLVED if number % 2 else SOLVED))
    events = []
    update(run, events.append)
    assert len(events) > 3
    assert events[-1]["done"] == events[-1]["total"] == run.part(Split.TRAIN, 0).stat().st_size
    assert outcomes(run) == scanned(run)


def test_the_index_of_a_removed_iteration_is_removed(run):
    append(run, trajectory(0))
    append(run, trajectory(0, iteration=1))
    update(run)
    run.part(Split.TRAIN, 0).unlink()
    append(run, trajectory(1, iteration=1))
    assert list(outcomes(run)) == ["train-0001-00000", "train-0001-00001"]
    assert not [name for name in main_files(run) if name.startswith("train.0000")]


def test_a_condition_is_checked_before_it_is_asked(run):
    append(run, trajectory(0))
    with open_index(run) as index:
        assert len(list(index.places(index.check_where("reward = 1 AND site LIKE '%' -- a comment")))) == 1
        for wrong in ("rewrad = 1", "reward =", "1) ; DROP VIEW steps; SELECT (1", ""):
            with pytest.raises(UsageError, match="is no condition") as failure:
                index.check_where(wrong)
            assert "reward" in failure.value.hint and "\n" not in str(failure.value)
        for cast in ("id::INTEGER = 1", "(id || '1')::DATE IS NULL", "(900 + iteration)::TINYINT = 1"):
            checked = index.check_where(cast)
            assert list(index.places(f"id = 'another' AND {checked}")) == []
            with pytest.raises(UsageError, match=r"fails at a row: Conversion Error.*[^\n]*$") as failure:
                list(index.places(checked))
            assert "TRY_CAST" in failure.value.hint
        assert len(list(index.places())) == 1


def test_a_query_goes_on_while_the_index_grows(run):
    fill(run, 3)
    with open_index(run) as index:
        rows = index.rows("SELECT id FROM trajectories")
        first = next(rows)
        for number in range(3, 9):
            append(run, trajectory(number))
            update(run)
        assert len([first, *rows]) == 3
        assert index.one("SELECT count(*) AS n FROM steps") == {"n": 6}


@each(
    ("spans", "chain"),
    [
        ([], []),
        ([(5, 9)], []),
        ([(0, 5), (5, 9)], [(0, 5), (5, 9)]),
        ([(0, 5), (0, 9), (5, 9)], [(0, 9)]),
        ([(0, 5), (0, 9), (5, 12), (9, 10)], [(0, 9), (9, 10)]),
        ([(0, 5), (6, 9)], [(0, 5)]),
    ],
)
def test_the_longest_spans_cover_a_source(spans, chain):
    assert find_covering(ByteRange(*span) for span in spans) == [ByteRange(*span) for span in chain]


def test_an_index_that_cannot_be_written_is_said_and_loses_nothing(run, monkeypatch):
    append(run, trajectory(0))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrow.pq, "write_table", full)
    events = []
    refresh_index(run, events.append)
    assert "No space left on device" in events[-1]["message"]
    with pytest.raises(StoreError, match="can't be written"):
        update(run)
    monkeypatch.undo()
    assert not list(run.index.rglob("*.new"))
    assert len(outcomes(run)) == 1


def test_a_rollout_needs_neither_duckdb_nor_arrow():
    script = "import sys, webgym_cli.loop.loop; sys.exit('duckdb' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_line_in_the_folder_of_another_iteration_is_named_and_skipped(run):
    fill(run, 2)
    run.part(Split.TRAIN, 1).parent.mkdir(parents=True)
    run.part(Split.TRAIN, 1).write_bytes(run.part(Split.TRAIN, 0).read_bytes())
    noted = []
    assert list(scan(run, Split.TRAIN, 1, noted)) == []
    assert len(noted) == 2
    assert "it is of train iteration 0 and stands with train iteration 1" in noted[0]
    assert len(outcomes(run)) == 2
    with open_index(run) as index:
        reasons = [row["reason"] for row in index.rows("SELECT reason FROM damage")]
    assert reasons == [noted[0].partition(": ")[2]] * 2


@pytest.mark.parametrize("moment", ["", "yesterday", "2026-01-01T00:00:00", "0001-01-01T00:00:00+05:00"])
def test_a_moment_that_is_none_is_damage(run, moment):
    line = trajectory(0).to_line().replace("2026-01-02T03:04:05.000+00:00", moment)
    run.part(Split.TRAIN, 0).parent.mkdir(parents=True)
    run.part(Split.TRAIN, 0).write_text(f"{line}\n")
    assert scanned(run) == outcomes(run) == {}
    assert count_rows(run, "damage") == 1


def test_a_number_that_no_column_holds_is_null_and_stops_nothing(run):
    append(run, trajectory(0).model_copy(update={"seed": 2**70}))
    append(run, trajectory(1))
    with open_index(run) as index:
        assert [row["seed"] for row in index.rows("SELECT seed FROM trajectories ORDER BY id")] == [None, 1]


def test_a_trajectory_is_read_without_the_numbers_that_are_not_wanted(run):
    generation = Generation(token_ids=(1, 2), logprobs=(-0.5, -1e-9, 0.0), prompt_tokens=7, finish_reason="stop")
    text = 'a reply that says "token_ids":[1,2] and ,"logprobs":[-0.5] itself'
    steps = (step(0, generation=generation, response=text), step(1, generation=generation), step(2))
    episode = trajectory(0, steps=steps)
    append(run, episode)
    with open_index(run) as index:
        (place,) = index.places()
    assert read(run, place) == episode
    bare = read(run, place, without=("token_ids", "logprobs"))
    assert [(one.generation.token_ids, one.generation.logprobs) for one in bare.steps] == [(None, None)] * 3
    assert [one.response for one in bare.steps] == [one.response for one in steps]
    assert bare.steps[0].generation.prompt_tokens == 7
    assert read(run, place, without=("logprobs",)).steps[0].generation.token_ids == (1, 2)


@pytest.mark.parametrize("own", [[[1, 2], [3]], ["a]b", "c"], [{"k": [1]}]])
def test_a_task_may_have_a_field_of_that_name_with_whatever_in_it(run, own):
    episode = trajectory(0, task=Task(id="t", start_url="http://a/", extra={"logprobs": own}))
    append(run, episode)
    with open_index(run) as index:
        (place,) = index.places()
    assert read(run, place, without=("logprobs",)) == episode


def test_what_is_expected_is_asked_of_the_system_once_a_line_and_a_lost_file_is_told_by_the_reading(run, monkeypatch):
    spans = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *span: spans.append(span), raising=False)
    fill(run, 3)
    with open_index(run) as index:
        places = list(index.places())
    prefetch(run, places)
    assert [span[:2] for span in spans] == [(place.offset, place.length) for place in places]
    run.part(Split.TRAIN, 0).unlink()
    prefetch(run, places)
    assert len(spans) == 3
    with pytest.raises(StoreError):
        read(run, places[0])


def test_a_tasks_own_fields_are_one_json_column(run):
    fields = {"extra": {"template": "7", "plan": {"items": [1, 2]}, "name": "Zoë"}, "role": "admin"}
    append(run, trajectory(0, task=Task(id="a", environment="web", **fields)))
    append(run, trajectory(1, task=Task(id="b", environment="web")))
    columns = "task_fields->>'role' AS role, task_fields->>'name' AS name"
    columns += ", (task_fields->'plan'->'items'->1)::INT AS two"
    with open_index(run) as index:
        rows = [tuple(row.values()) for row in index.rows(f"SELECT {columns} FROM trajectories ORDER BY task")]
    assert rows == [("admin", "Zoë", 2), (None, None, None)]
