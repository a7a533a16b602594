"""Where a run's time went, against sums made by hand."""

import pytest

from tests.inspect.buffers import fill_run
from tests.report.runs import at, facts, note
from webgym_cli.records.stored_events import TimedEvent
from webgym_cli.report import timing
from webgym_cli.report.figures import BARS, make_bars
from webgym_cli.report.timing import compute_cost, read_timed_events
from webgym_cli.report.views import build_sections
from webgym_cli.util.text import format_duration

EVALUATION = {"event": "evaluation", "iteration": 0, "seconds": 10, "at": at(10)}
ROLLOUT = {"event": "rollout", "iteration": 0, "seconds": 20.0, "at": at(40), "stages": {"act": {"total": 12.5}}}
PREPARE = {"event": "prepare", "iteration": 0, "model_name": "m", "at": at(50)}
TRAIN = {"event": "train", "iteration": 0, "name": "m", "created_at": at(110), "at": at(111)}
LOOP = [EVALUATION, ROLLOUT, PREPARE, TRAIN]


def timed(events):
    return [TimedEvent.model_validate(event) for event in events]


def find_spans(events):
    return [(span.stage, span.seconds) for span in timing.find_spans(timed(events))]


def measure_timing(events):
    return timing.measure_timing(timed(events))


def test_a_training_lasts_from_its_dataset_to_its_checkpoint():
    assert find_spans(LOOP) == [("evaluation", 10), ("rollout", 20), ("train", 60)]
    assert find_spans([PREPARE, {**TRAIN, "seconds": 7}]) == [("train", 7)]
    assert find_spans([{**TRAIN, "name": "another"}, PREPARE]) == []


def test_idle_is_what_no_stage_covers():
    result = measure_timing(LOOP)
    assert (result["wall_seconds"], result["idle_seconds"], result["idle_share"]) == (111, 21, round(21 / 111, 4))
    seconds = {"evaluation": 10, "rollout": 20, "prepare": None, "train": 60}
    assert result["stages"] == {stage: {"times": 1, "seconds": spent} for stage, spent in seconds.items()}
    assert result["by_iteration"] == {"0": {"evaluation": 10, "rollout": 20, "train": 60}}
    assert (result["first"], result["last"]) == ("2026-01-02T00:00:00+00:00", "2026-01-02T00:01:51+00:00")
    assert result["episode_seconds"] == {"act": 12.5}
    assert measure_timing([])["gpu"]["idle_share"] is None


def test_stages_at_the_same_time_are_covered_once():
    result = measure_timing([EVALUATION, {"event": "judge", "seconds": 30, "at": at(35)}, ROLLOUT])
    assert result["idle_seconds"] == 0  # 0-10, 5-35, 20-40
    assert result["by_iteration"] == {"0": {"evaluation": 10, "rollout": 20}}


def test_cost_is_hours_times_gpus_times_price():
    hours = [{**EVALUATION, "seconds": 3600, "at": at(3600)}, {**ROLLOUT, "seconds": 1800, "at": at(7200)}]
    times = measure_timing(hours)
    spent = compute_cost(times, gpus=8, price=2.5)
    assert spent["stages"]["evaluation"] == {"hours": 1, "gpu_hours": 8, "cost": 20}
    assert spent["idle"] == {"hours": 0.5, "gpu_hours": 4, "cost": 10}
    assert spent["total"] == {"hours": 2, "gpu_hours": 16, "cost": 40}
    assert compute_cost(times, gpus=1, price=None)["total"] == {"hours": 2, "gpu_hours": 2, "cost": None}


@pytest.mark.parametrize(
    "odd",
    [
        {"at": None},
        {"at": "yesterday"},
        {"at": at(40).removesuffix("+00:00")},
        {"seconds": "20"},
        {"seconds": float("nan")},
        {"seconds": -1},
        {"stages": ["act"]},
        {"stages": {"act": 3}},
        {"iteration": "x"},
    ],
    ids=str,
)
def test_events_of_another_shape_are_no_obstacle(tmp_path, odd):
    run = fill_run(tmp_path / "run")
    note(run, EVALUATION, {**ROLLOUT, **odd}, {**PREPARE, "train_samples": "many"}, {**TRAIN, **odd, "loss": "low"})
    result = facts(run)
    assert result["timing"]["stages"]["evaluation"]["seconds"] == 10
    assert (result["datasets"], result["trainings"]) == ([], [])


def test_events_come_in_the_order_of_time(tmp_path):
    run = fill_run(tmp_path / "run")
    note(run, *reversed(LOOP))
    assert read_timed_events(run) == timed(LOOP)


def test_lines_that_are_no_events_and_a_loss_that_is_no_number(tmp_path):
    run = fill_run(tmp_path / "run")
    training = {**TRAIN, "version": 1, "parent": "base", "steps": 3, "loss": float("nan")}
    note(run, 3, [1], "train", training, {**training, "version": 2, "loss": 0.5})
    assert [training.loss for training in facts(run)["trainings"]] == [None, 0.5]


def test_of_many_bars_the_newest_are_drawn_and_all_are_told():
    rows = [(f"iteration {n}", {"train": float(n)}) for n in range(BARS + 5)]
    figure = make_bars("Time", rows, ("rollout", "train"), format_duration)
    assert (figure.svg.count("<rect"), len(figure.rows), figure.legend) == (BARS, BARS + 5, ("train",))
    assert ">iteration 5<" in figure.svg and ">iteration 4<" not in figure.svg
    assert figure.note == "The newest 20 of 25; the table has all."


SERVE = {"event": "serve", "seconds": 20, "at": at(20)}
LONG = [
    SERVE,  # 0-20
    {"event": "evaluation", "iteration": 0, "seconds": 30, "at": at(50), "judge_tail_seconds": 4},  # 20-46, judge to 50
    {"event": "rollout", "iteration": 0, "seconds": 50, "at": at(100), "policy": "model", "judge_tail_seconds": 10},
    {"event": "prepare", "iteration": 0, "model_name": "m", "seconds": 15, "at": at(120)},  # 105-120
    {"event": "sleep", "seconds": 5, "at": at(126)},  # 121-126
    {"event": "train", "iteration": 0, "name": "m", "seconds": 60, "at": at(190)},  # 130-190
    {"event": "serve", "seconds": 4, "at": at(199)},  # within the wake: a restart
    {"event": "wake", "seconds": 8, "at": at(200)},  # 192-200
    {"event": "rollout", "iteration": 1, "seconds": 30, "at": at(230), "policy": "oracle"},
    {"event": "generate", "seconds": 2, "at": at(233)},  # 231-233
    {"event": "judge", "seconds": 4, "at": at(237)},  # 233-237
    {"event": "score", "seconds": 3, "at": at(240)},  # 237-240
]


def test_gpus_are_idle_when_no_policy_acts_and_no_trainer_trains():
    causes = {"server_start": 20 + 4, "new_weights": 5 + 8 - 4, "prepare": 15, "judge": 4 + 10 + 7, "new_tasks": 2}
    causes |= {"expert": 30, "nothing": 5 + 1 + 4 + 2 + 1}
    gpu = {"busy_seconds": 26 + 40 + 60, "idle_seconds": 240 - 126, "idle_share": round(114 / 240, 4)}
    assert measure_timing(LONG)["gpu"] == {**gpu, "causes": causes}


def test_several_replicas_start_at_once():
    other = {"event": "serve", "seconds": 12, "at": at(24)}
    assert measure_timing([SERVE, other])["gpu"]["causes"]["server_start"] == 24
    assert measure_timing([SERVE, other])["stages"] == {}


def test_a_server_that_starts_while_another_policy_acts_leaves_no_gpu_idle():
    rollout = {"event": "rollout", "iteration": 0, "seconds": 20, "at": at(20), "judge_tail_seconds": 99}
    gpu = measure_timing([SERVE, rollout])["gpu"]
    assert (gpu["busy_seconds"], gpu["causes"]["server_start"]) == (0, 20)  # all of it was judging
    gpu = measure_timing([SERVE, {**rollout, "judge_tail_seconds": "x"}])["gpu"]
    assert (gpu["busy_seconds"], gpu["idle_seconds"], gpu["idle_share"]) == (20, 0, 0)


def test_idle_gpus_are_on_the_page(tmp_path):
    run = fill_run(tmp_path / "run")
    note(run, *LONG)
    section = next(section for section in build_sections(facts(run)) if section.id == "time")
    (table,) = (figure for figure in section.figures if figure.title == "Idle GPUs")
    rows = (("at work", "2.1 min", "52.5 %"), ("idle", "114 s", "47.5 %"), ("idle: server start", "24 s", "10 %"))
    assert table.rows[:3] == rows


def test_in_a_survey_a_policy_acts():
    survey = {"event": "survey", "iteration": 0, "seconds": 20, "at": at(30), "policy": "model"}
    result = measure_timing([EVALUATION, survey])
    assert (result["idle_seconds"], result["gpu"]["busy_seconds"]) == (0, 30)
    assert result["by_iteration"] == {"0": {"evaluation": 10, "survey": 20}}
