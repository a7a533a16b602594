"""Each filter where exactly it bites, with the counts it must give."""

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from tests.prepare.buffer import converter, drawn, fill, planned, settings, steps_of
from tests.records.builders import CRASHED, SOLVED, UNSOLVED, new_run, png, shot, step, trajectory
from tests.records.test_judgement import ANSWERED, WEB, judgement
from webgym_cli.prepare.sft.execute import StepSampler
from webgym_cli.prepare.sft.filters import DropReason, build_filters, find_step_drop, list_content_reasons
from webgym_cli.prepare.sft.plan import build_plan
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.judgement import Verdict
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import Generation, Observation, Outcome, ParseErrorKind
from webgym_cli.store.buffer import append, append_judgement, scan
from webgym_cli.store.index.query import open_index
from webgym_cli.store.screenshots import ScreenshotStore

EVERY_FILTER = [
    'filters.only_sites=["a", "b.com", "miniwob"]',
    'filters.exclude_sites=["c.com"]',
    'filters.difficulties=["easy", "medium"]',
    "filters.max_age_hours=24",
    "filters.min_agreement=0.6",
    "filters.drop_older_repeats=true",
    "filters.stable_pages=true",
    "filters.max_steps_per_trajectory=2",
    "filters.max_steps_per_task=3",
]


def dropped(rows):
    """Return the counts that are not zero."""
    return {name: count for name, count in rows.items() if count}


def web(site, difficulty=1):
    return Task(id=f"{site} {difficulty}", environment="web", start_url=f"https://www.{site}/", difficulty=difficulty)


LEFT_OUT = {
    DropReason.FAILURE: {"outcome": CRASHED},
    DropReason.EMPTY: {"steps": 0},
    DropReason.TOO_FEW_STEPS: {"steps": 1},
    DropReason.REWARD_UNKNOWN: {"outcome": Outcome(stop=Stop.ANSWERED)},
    DropReason.UNSUCCESSFUL: {"outcome": UNSOLVED},
}


@pytest.mark.parametrize("reason", LEFT_OUT)
def test_why_a_trajectory_is_left_out(run, reason):
    left_out = trajectory(**LEFT_OUT[reason])
    fill(run, left_out)
    plan, draw = drawn(run, settings(), [0])
    assert dropped(plan.counts.dropped_trajectories) == {reason.value: 1}
    assert plan.counts.steps == plan.counts.steps_of_dropped_trajectories == len(left_out.steps)
    assert (plan.eligible, draw.samples) == (0, [])
    assert plan.counts.failures == ({"browser_crashed": 1} if reason is DropReason.FAILURE else {})


def test_the_first_filter_that_holds_gives_the_reason(run):
    fill(run, trajectory(outcome=CRASHED, steps=0), trajectory(1, steps=1, outcome=UNSOLVED, task=web("b.com")))
    plan, _ = drawn(run, settings('filters.only_sites=["a.com"]'), [0])
    assert dropped(plan.counts.dropped_trajectories) == {"failure": 1, "too_few_steps": 1}


def test_trajectories_of_one_id_are_left_out(run):
    """Files of two runs were put together: one has a step 2, the other hasn't."""
    fill(run, trajectory(0, steps=2), trajectory(1))
    fill(run, trajectory(0, steps=3), rank=1)
    plan, draw = drawn(run, settings(), [0])
    assert dropped(plan.counts.dropped_trajectories) == {"ambiguous_id": 2}
    assert plan.counts.steps == 7 == plan.counts.steps_of_dropped_trajectories + plan.eligible
    assert {name for name, _ in steps_of(draw)} == {"train-0000-00001"}


def test_sites_and_bands_choose(run):
    tasks = [web("b.com"), web("b.com", 5), web("c.com", 5), web("c.com", 9)]
    fill(run, *(trajectory(number, task=task) for number, task in enumerate(tasks)))

    def left(*overrides):
        with planned(run, settings(*overrides), [0]) as plan:
            return plan.eligible // 2, dropped(plan.counts.dropped_trajectories)

    assert left() == (4, {})
    assert left('filters.only_sites=["b.com"]') == (2, {"other_site": 2})
    assert left('filters.exclude_sites=["b.com", "c.com"]') == (0, {"other_site": 4})
    assert left('filters.only_sites=["b.com", "c.com"]', 'filters.exclude_sites=["b.com"]') == (2, {"other_site": 2})
    assert left('filters.difficulties=["medium"]') == (2, {"other_band": 2})
    both = ('filters.only_sites=["b.com"]', 'filters.difficulties=["medium"]')
    assert left(*both) == (1, {"other_site": 2, "other_band": 1})


def test_the_age_counts_from_the_newest(run):
    for number, moment in enumerate(["01T00:00:00.000", "02T11:59:59.999", "02T12:00:00.000", "03T12:00:00.000"]):
        fill(run, trajectory(number, started_at=f"2026-01-{moment}+00:00"))
    fill(run, trajectory(0, split=Split.TEST, started_at="2026-06-01T00:00:00.000+00:00"))
    plan, draw = drawn(run, settings("filters.max_age_hours=24"), [0])
    assert dropped(plan.counts.dropped_trajectories) == {"too_old": 2}
    assert {name[-1] for name, _ in steps_of(draw)} == {"2", "3"}


def test_steps_on_pages_that_were_not_settled_are_left_out(run):
    states = (None, {"status": 200}, {"loading": "moving"}, {"loading": "timed_out", "pending": 2}, {"status": 404})
    seen = [Observation(url="http://a/", screenshot=shot(at), state=state) for at, state in enumerate(states)]
    steps = tuple(step(at, observation=one) for at, one in enumerate(seen))
    fill(run, trajectory(0, steps=steps))
    plan, draw = drawn(run, settings("filters.stable_pages=true"), [0])
    assert plan.counts.dropped_steps == {**plan.counts.dropped_steps, "unstable_page": 3}
    assert sorted(number for _, number in steps_of(draw)) == [0, 1]
    with open_index(run) as index:
        rows = list(index.rows("SELECT loading, pending, console_errors, status FROM steps ORDER BY step"))
    assert [tuple(row.values()) for row in rows][2:4] == [("moving", 0, 0, None), ("timed_out", 2, 0, None)]


def voted(number, *votes, reason=True):
    question = Verdict(question="?", passed=reason, votes=votes)
    unanimous = Verdict(question="!", passed=True, votes=(True,) * 3)
    return judgement(trajectory=f"train-0000-{number:05d}", claims=unanimous, facts=(question,), success=True)


def test_votes_that_disagree_are_left_out(run):
    for number in range(4):
        fill(run, trajectory(number, task=WEB, outcome=ANSWERED))
    fill(run, trajectory(4))  # scored by its environment
    divided = (True, True, False)
    for number, votes in ((0, divided), (1, (True, *divided)), (2, (True,)), (4, divided)):
        append_judgement(run, Split.TRAIN, 0, voted(number, *votes))
    plan, draw = drawn(run, settings("filters.min_agreement=0.75"), [0])
    assert dropped(plan.counts.dropped_trajectories) == {"reward_unknown": 1, "judge_divided": 1}
    assert {int(name[-1]) for name, _ in steps_of(draw)} == {1, 2, 4}


def test_the_newest_judgement_decides(run):
    fill(run, trajectory(0, task=WEB, outcome=ANSWERED), trajectory(1, task=WEB, outcome=ANSWERED))
    append_judgement(run, Split.TRAIN, 0, voted(0, True))
    append_judgement(run, Split.TRAIN, 0, voted(1, True))
    later = {"judged_at": "2026-02-01T00:00:00.000+00:00"}
    append_judgement(run, Split.TRAIN, 0, judgement(failure=FailureKind.SITE_BLOCKED, **later))
    failed = judgement(trajectory="train-0000-00001", failure=FailureKind.JUDGE_FAILED, **later)
    append_judgement(run, Split.TRAIN, 0, failed)  # it says nothing
    plan, draw = drawn(run, settings(), [0])
    assert dropped(plan.counts.dropped_trajectories) == {"failure": 1}
    assert plan.counts.failures == {"site_blocked": 1}
    assert [sample.reward for sample in draw.samples] == [1.0, 1.0]


MOVING = Observation(url="http://a/", screenshot=shot(1), state={"loading": "moving"})


def picture(**size):
    return Observation(url="http://a/", screenshot=shot(1, **size))


@pytest.mark.parametrize(
    ("second", "overrides", "reason"),
    [
        (step(1, action=None, parse_error=ParseErrorKind.NO_TOOL_CALL), [], DropReason.NO_ACTION),
        (step(1, page_changed=False), [], DropReason.SAME_SCREENSHOT),
        (step(1, observation=MOVING), ["filters.stable_pages=true"], DropReason.UNSTABLE_PAGE),
        (step(1, response="short"), ["algorithm_config.min_token_length=2"], DropReason.RESPONSE_TOO_SHORT),
        (step(1, response="an <image> of it all"), [], DropReason.RESPONSE_HAS_PLACEHOLDER),
        (step(1, response="an <|im_end|> of it all"), [], DropReason.RESPONSE_HAS_PLACEHOLDER),
        (step(1, response="aa bbb", generation=Generation(token_ids=(2, 4))), [], DropReason.RETOKENIZED),
        (step(1, response="aa bbb", generation=Generation(token_ids=(2, 3, 0, 0))), [], DropReason.RETOKENIZED),
        (step(1, observation=picture(width=9, height=9)), [], DropReason.IMAGE_SIZE),
        (step(1, observation=picture(width=1300, height=1024)), [], DropReason.IMAGE_SIZE),
    ],
    ids=lambda value: value.value if isinstance(value, DropReason) else "",
)
def test_why_a_step_is_left_out(run, second, overrides, reason):
    fill(run, trajectory(steps=(step(0), second)))
    plan, draw = drawn(run, settings(*overrides), [0])
    assert dropped({**plan.counts.dropped_steps, **draw.dropped}) == {reason.value: 1}
    assert [sample.step for sample in draw.samples] == [0]
    in_hand = find_step_drop(second, settings(*overrides))
    assert in_hand == (reason if reason.value in plan.counts.dropped_steps else None)


@pytest.mark.parametrize("ids", [(2, 3), (2, 3, 99), None])
def test_the_sampled_ids_may_have_their_stop_token(run, ids):
    kept = step(1, response="aa bbb", generation=Generation(token_ids=ids))
    fill(run, trajectory(steps=(step(0), kept)))
    assert len(drawn(run, settings(), [0])[1].samples) == 2


def test_what_is_switched_off_drops_nothing(run):
    same = step(1, page_changed=False, response="aa bbb", generation=Generation(token_ids=(7,)))
    fill(run, trajectory(outcome=UNSOLVED, steps=(step(0), same)))
    off = ("filter_successful_only", "filter_same_screenshot", "filter_retokenized")
    plan, draw = drawn(run, settings(*(f"algorithm_config.{name}=false" for name in off)), [0])
    assert len(draw.samples) == 2
    named = {**plan.counts.dropped_trajectories, **plan.counts.dropped_steps, **draw.dropped}
    assert not {"unsuccessful", "same_screenshot", "retokenized"} & named.keys()


@pytest.mark.parametrize("harm", ["missing", "altered"])
def test_a_sample_whose_image_is_gone_is_left_out(run, harm):
    fill(run, trajectory(steps=3))
    path = ScreenshotStore(run.screenshots).path(shot(1).sha256)
    path.unlink() if harm == "missing" else path.write_bytes(png(9))
    draw = drawn(run, settings(), [0])[1]
    # the second step shows it, the third has it in its history
    assert dropped(draw.dropped) == {DropReason.IMAGE_MISSING.value: 2}
    assert [sample.step for sample in draw.samples] == [0]


def test_a_line_that_is_damaged_later_is_named_and_left_out(run):
    fill(run, *(trajectory(number, steps=3) for number in range(3)))
    part = run.part(Split.TRAIN, 0)
    events = []
    with planned(run, settings(), [0]) as plan:
        lines = part.read_bytes().splitlines(keepends=True)
        part.write_bytes(lines[0] + lines[1].replace(b'"schema"', b'"schemA"') + lines[2])
        draw = StepSampler(plan, run, settings(), converter(run, settings()), events.append).execute()
    assert dropped(draw.dropped) == {"damaged": 3}
    assert {name[-1] for name, _ in steps_of(draw)} == {"0", "2"}
    (line,) = draw.damaged
    assert line.startswith(f"{part}: the line at byte {len(lines[0])} is damaged")
    assert [event["line"] for event in events if event["event"] == "damaged"] == [line]


def test_of_repeats_the_newest_iteration_stays(run):
    same, other = step(0), step(1, response="click elsewhere")
    twice = trajectory(steps=(same, same.model_copy(update={"index": 1})))
    fill(run, trajectory(0, iteration=0, steps=2), trajectory(1, iteration=1, steps=2))
    fill(run, trajectory(2, iteration=0, task=Task(id="another", start_url="http://a/")))
    fill(run, trajectory(3, iteration=0, steps=(step(0), other)))
    append(run, twice.model_copy(update={"id": "train-0002-00000", "iteration": 2}))
    plan, draw = drawn(run, settings("filters.drop_older_repeats=true"), [0, 1, 2])
    # step 0 of 0, 1 and 3 is in iteration 2 (twice, and both stay); step 1 of 0 is in iteration 1
    assert dropped(plan.counts.dropped_steps) == {"older_repeat": 4}
    left = [(name[-1], index) for name, index in sorted(steps_of(draw))]
    assert left == [("2", 0), ("2", 1), ("3", 1), ("1", 1), ("0", 0), ("0", 1)]


def test_a_repeat_that_is_not_eligible_takes_nothing_away(run):
    fill(run, trajectory(0, iteration=0), trajectory(1, iteration=1, outcome=UNSOLVED))
    stuck = tuple(step(index, page_changed=False) for index in range(2))
    fill(run, trajectory(2, iteration=1, steps=stuck))
    plan, _ = drawn(run, settings("filters.drop_older_repeats=true"), [0, 1])
    assert dropped(plan.counts.dropped_steps) == {"same_screenshot": 2}


def test_caps_count(run):
    fill(run, *(trajectory(number, steps=4) for number in range(3)))
    fill(run, trajectory(3, steps=3, task=Task(id="another")))
    plan, draw = drawn(run, settings("filters.max_steps_per_trajectory=2"), [0])
    assert dropped(plan.counts.dropped_steps) == {"trajectory_cap": 2 + 2 + 2 + 1}
    assert set(Counter(name for name, _ in steps_of(draw)).values()) == {2}
    plan, draw = drawn(run, settings("filters.max_steps_per_task=5"), [0])
    assert dropped(plan.counts.dropped_steps) == {"task_cap": 12 - 5}
    both = settings("filters.max_steps_per_trajectory=2", "filters.max_steps_per_task=5")
    plan, draw = drawn(run, both, [0])
    assert dropped(plan.counts.dropped_steps) == {"trajectory_cap": 7, "task_cap": 1}
    assert len(draw.samples) == 5 + 2
    stuck = (step(0, page_changed=False), step(1, action=None, parse_error=ParseErrorKind.NO_TOOL_CALL), step(2))
    fill(run, trajectory(4, steps=stuck, iteration=1))
    plan, draw = drawn(run, settings("filters.max_steps_per_trajectory=1"), [1])  # nothing for what is out anyway
    assert dropped(plan.counts.dropped_steps) == {"same_screenshot": 1, "no_action": 1}
    assert [index for _, index in steps_of(draw)] == [2]


def test_the_seed_decides_what_a_cap_leaves(run):
    fill(run, *(trajectory(number, steps=6) for number in range(4)))

    def left(seed):
        return sorted(steps_of(drawn(run, settings("filters.max_steps_per_trajectory=2", f"seed={seed}"), [0])[1]))

    assert left(0) == left(0) != left(1)


def test_what_a_cap_leaves_is_drawn_by_its_weights(run):
    """WebGym's shares of four equal parts hold with a cap as without: the cap's choice has no say in the draw's."""
    for iteration in range(4):
        for number in range(100):
            append(run, trajectory(number, iteration=iteration, steps=5))
    counts = Counter()
    with open_index(run) as index:
        for seed in range(40):
            caps = ("algorithm_config.positive_samples_to_train=15", "filters.max_steps_per_trajectory=1")
            chosen = settings("algorithm_config.weighting=position", *caps, f"seed={seed}")
            plan = build_plan(chosen, index, 3, range(4))
            assert plan.eligible == 400
            counts.update(plan.quotas)
    for iteration, share in enumerate((0.016, 0.109, 0.297, 0.578)):
        assert abs(counts[iteration] / 600 - share) < 4 * (share * (1 - share) / 600) ** 0.5


def test_each_reason_is_one_that_a_filter_gives():
    everything = settings(*EVERY_FILTER)
    filters = build_filters(everything)
    named = [item.drop for item in (*filters.trajectories, *filters.steps, *filters.together)]
    assert [drop for drop, _ in groupby([*named, *list_content_reasons(everything)])] == list(DropReason)


def test_every_filter_is_listed_in_order_with_its_zero(run):
    fill(run, trajectory())
    with planned(run, settings(*EVERY_FILTER), [0]) as plan:
        shown = plan.to_json()
    names = [drop.value for drop in DropReason]
    assert list(shown["dropped_trajectories"]) == names[:10]
    assert list(shown["dropped_steps"]) == names[10:16]
    assert set(shown["dropped_trajectories"].values()) | set(shown["dropped_steps"].values()) == {0}


outcomes = st.sampled_from([SOLVED, SOLVED, SOLVED, UNSOLVED, CRASHED, Outcome(stop=Stop.ANSWERED)])
kinds_of_step = st.lists(st.sampled_from(["good", "good", "good", "same", "none"]), max_size=5)
episodes = st.tuples(st.integers(0, 2), outcomes, kinds_of_step, st.sampled_from(["a.com", "b.com"]))
DAMAGED = {"same": {"page_changed": False}, "none": {"action": None, "parse_error": ParseErrorKind.NO_TOOL_CALL}}


@example_settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    drawn_episodes=st.lists(episodes, min_size=1, max_size=8),
    switched_on=st.sets(st.sampled_from(["older", "trajectory", "task", "site"])),
)
def test_every_step_is_eligible_or_dropped_for_one_reason(tmp_path_factory, drawn_episodes, switched_on):
    run = new_run(tmp_path_factory.mktemp("any") / "run")
    for number, (iteration, outcome, kinds, site) in enumerate(drawn_episodes):
        steps = tuple(step(index, **DAMAGED.get(kind, {})) for index, kind in enumerate(kinds))
        fill(run, trajectory(number, iteration=iteration, steps=steps, outcome=outcome, task=web(site)))
    choices = {
        "older": "filters.drop_older_repeats=true",
        "trajectory": "filters.max_steps_per_trajectory=2",
        "task": "filters.max_steps_per_task=3",
        "site": 'filters.exclude_sites=["b.com"]',
    }
    chosen = settings(*(choices[name] for name in switched_on))
    read = sorted({iteration for iteration, *_ in drawn_episodes})
    with planned(run, chosen, read) as plan:
        counts = plan.counts
    assert counts.trajectories == sum(counts.dropped_trajectories.values()) + _fit(run, read, switched_on)
    assert counts.steps == sum(len(kinds) for _, _, kinds, _ in drawn_episodes)
    left_out = counts.steps_of_dropped_trajectories + sum(counts.dropped_steps.values())
    assert counts.steps == left_out + plan.eligible
    if not switched_on - {"site"}:
        solved = [(kinds, site) for _, outcome, kinds, site in drawn_episodes if outcome is SOLVED and len(kinds) >= 2]
        left = [kinds for kinds, site in solved if not (site == "b.com" and switched_on)]
        assert plan.eligible == sum(kinds.count("good") for kinds in left)


def _fit(run, read, switched_on):
    """Return how many stored trajectories solved their task in two steps or more, on a site that is not excluded."""
    stored = (item for iteration in read for item in scan(run, Split.TRAIN, iteration))
    usable = (item for item in stored if item.outcome.success and len(item.steps) >= 2)
    return sum("site" not in switched_on or "b.com" not in item.task.start_url for item in usable)
