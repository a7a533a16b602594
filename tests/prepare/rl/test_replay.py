"""What a batch of webrl takes over: candidates, scores that are kept, the window, the cap, the draw, the lines."""

import json

import pytest

from tests.prepare.rl_builders import ANSWER, CALL, line_of, sampled, served, settings, store, talk
from tests.prepare.webrl_builders import (
    NEVER,
    OFTEN,
    POLICY,
    SELDOM,
    Scorer,
    at,
    demonstrations,
    experience,
    prepared,
    second_phase,
)
from tests.records.builders import step, trajectory
from webgym_cli.errors import SettingsError, WebGymError
from webgym_cli.loop.preparation import is_up_to_date
from webgym_cli.prepare.rl.plan import plan_batch
from webgym_cli.prepare.rl.rows import tokenize_actions
from webgym_cli.prepare.rl.score import LogprobCache
from webgym_cli.records.trajectory import PromptSpec, PromptVersion
from webgym_cli.store.index.query import open_index
from webgym_cli.store.prepared import find_batch
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import write_json


@pytest.fixture
def shown(tmp_path, model):
    return demonstrations(RunDir(tmp_path / "shown"), model)


@pytest.fixture
def with_(run, shown, model):
    return second_phase(run, model, experience(shown))


def lines(run, name):
    return line_of(run.root / "rl_data" / name)


def replayed(run):
    return [(row["trajectory"], row["step"]) for row in lines(run, "rows.jsonl") if row["replayed"]]


def dropped(run):
    return json.loads((run.root / "rl_data" / "dropped.json").read_text())["replay"]


def counted(run, what):
    return {reason: count for reason, count in dropped(run)[f"dropped_{what}"].items() if count}


def changed(with_, section="replay", **changes):
    """Return settings with other values of `rl.replay`, or of another section of `rl`."""
    of_section = getattr(with_.rl, section).model_copy(update=changes)
    return with_.model_copy(update={"rl": with_.rl.model_copy(update={section: of_section})})


def planned(run, with_):
    with open_index(run) as index:
        return plan_batch(run, with_, index, transitions=with_.train.algorithm == "webrl")


def test_the_first_success_of_each_task_over_all_runs_is_a_candidate(run, shown, with_):
    """Task 0 was solved by the expert before the policy did; 5, 6 and 7 are of the iteration itself."""
    plan = planned(run, with_)
    rows = [(one.run.root, one.place.id[-1], one.policy) for one in plan.replay.candidates]
    assert rows == [(shown.root, "0", "oracle"), (shown.root, "3", "oracle"), (run.root, "4", "base")]
    assert plan.to_json()["replay"] == {
        "runs": [str(shown.root), str(run.root)],
        "dropped_trajectories": {"failure": 1, "repeated_task": 1, "unsuccessful": 1},
        **{"trajectories": 6, "candidates": 3, "actions_to_score": 7, "at_most": 8},
        **{"window": [1 / 0.95, 2.0], "policy": POLICY},
    }
    assert [path.name for path in shown.root.iterdir() if path.name.startswith("index")] == []  # nothing is written


def test_other_choices_of_candidates(run, shown, with_):
    def candidates(**changes):
        return [(one.place.id[-1], one.reward) for one in planned(run, changed(with_, **changes)).replay.candidates]

    assert candidates(one_per_task=False) == [("0", 1.0), ("3", 1.0), ("0", 1.0), ("4", 1.0)]
    assert candidates(ratio=0.0) == []
    assert candidates(experience=()) == [("0", 1.0), ("4", 1.0)]
    assert candidates(experience=(str(run.root),)) == [("0", 1.0), ("4", 1.0)]  # itself: once
    twice = (str(shown.root), f"{shown.root}/../shown")
    assert candidates(experience=twice, one_per_task=False) == candidates(one_per_task=False)


def test_a_folder_without_a_run_is_named(run, model, tmp_path):
    with_ = second_phase(run, model, f'rl.replay.experience=["{tmp_path}/nowhere"]')
    with pytest.raises(SettingsError, match=r"rl\.replay\.experience: .*nowhere: there is no run"):
        planned(run, with_)


async def test_current_rows_are_a_step_each_with_the_state_after(run, with_, tokens):
    data = await prepared(run, with_, Scorer())
    rows, trajectories = lines(run, "rows.jsonl"), lines(run, "trajectories.jsonl")
    current = [row for row in rows if not row["replayed"]]
    places = [(row["number"], row["steps"], row["last"]) for row in current]
    assert places == [(0, [0], False), (0, [1], True), (1, [0], False), (1, [1], True)]
    stored = tokenize_actions(at(served(talk(5), tokens), 1), tokens)
    for row, action in zip(current, stored, strict=False):
        assert list(row)[-3:] == ["next_prompt", "last", "replayed"]
        assert row["input_ids"] == [*action.prompt, *action.response]
        assert row["next_prompt"] == action.after
        assert [row["logprobs"][0], sum(row["mask"])] == [-(action.step + 1) / 8, len(action.response)]
    assert current[0]["next_prompt"] == current[1]["input_ids"][: -len(stored[1].response)]
    assert [(one["reward"], one["replayed"]) for one in trajectories[:3]] == [(1.0, False), (0.0, False), (None, False)]
    assert (data.current_rows, data.replayed_rows, data.rows, data.trained) == (4, 7, 11, 5)


async def test_replayed_rows_say_where_they_are_from_and_what_the_policy_thinks(run, shown, with_, tokens):
    await prepared(run, with_, Scorer())
    rows = [row for row in lines(run, "rows.jsonl") if row["replayed"]]
    others = lines(run, "trajectories.jsonl")[3:]
    keys = ("number", "group", "reward", "policy", "replayed")
    wanted = [("0", 3, 3, 1.0, "oracle", True), ("3", 4, 4, 1.0, "oracle", True), ("4", 5, 5, 1.0, "base", True)]
    assert [(one["id"][-1], *(one[key] for key in keys)) for one in others] == wanted
    places = [(row["number"], row["step"], row["last"], row["tokenized"]) for row in rows]
    assert places[:2] == [(3, 0, False, True), (3, 1, True, True)]
    assert places[2:5] == [(4, 0, False, True), (4, 1, False, True), (4, 2, True, True)]
    assert places[5:] == [(5, 0, False, False), (5, 1, True, False)]
    for row in rows:
        own = row["number"] == 5
        source = {"run": "" if own else str(shown.root), "trajectory": row["trajectory"]}
        counts = sampled(tokens, ANSWER if row["last"] else CALL)
        assert (row["source"], row["images"], row["sizes"]) == (source, [], [])
        assert row["perplexity"] == pytest.approx(1.3498588075760032)  # e^0.3
        assert row["logprobs"] == [SELDOM] * len(counts)
        assert row["input_ids"][-len(counts) :] == counts
        assert row["mask"] == [0] * (len(row["input_ids"]) - len(counts)) + [1] * len(counts)


async def test_the_stop_token_does_not_count(run, model, tokens, shown):
    """Nine tokens of ten are certain and the stop token is not: it is below the window all the same."""
    with_ = second_phase(run, model, experience(shown))

    class Certain(Scorer):
        async def of(self, prompt, response):
            await super().of(prompt, response)
            return [OFTEN] * (len(response) - 1) + [-50.0]

    assert (await prepared(run, with_, Certain())).replayed_rows == 0
    assert counted(run, "actions") == {"below_window": 7}


async def test_every_reason_is_counted(run, shown, with_, tokens):
    """Calls are what the policy does anyway, answers are within the window or beyond it by who gave them."""
    answer = len(sampled(tokens, ANSWER))
    seen = []

    def of(response):
        if len(response) != answer:
            return OFTEN
        seen.append(response)
        return NEVER if len(seen) == 1 else SELDOM

    store(shown, talk(8, "", ANSWER), talk(9, CALL, ANSWER, pictures=(96,)))
    data = await prepared(run, changed(with_, concurrency=1), Scorer(of))
    assert counted(run, "trajectories") == {"failure": 1, "repeated_task": 1, "unsuccessful": 1, "pictures": 1}
    assert counted(run, "actions") == {"empty_action": 1, "below_window": 4, "above_window": 1}
    assert (data.replayed_rows, dropped(run)["replayed"], dropped(run)["scored_actions"]) == (3, 3, 8)
    assert dropped(run)["trajectories"] == 8
    assert [one[0][-1] for one in replayed(run)] == ["3", "8", "4"]


async def test_the_cap_comes_after_the_window_and_the_seed_decides(run, shown, model):
    half = second_phase(run, model, experience(shown), "rl.replay.ratio=0.9")
    data = await prepared(run, half, Scorer())
    chosen, rows = replayed(run), (run.rl_data / "rows.jsonl").read_bytes()
    assert (data.replayed_rows, dropped(run)["at_most"]) == (3, 3)  # of 4 rows of its own
    assert counted(run, "actions") == {"over_ratio": 4}
    assert (await prepared(run, half, Scorer())).digest == data.digest
    assert (run.rl_data / "rows.jsonl").read_bytes() == rows
    others = set()
    for seed in range(1, 6):
        await prepared(run, half.model_copy(update={"seed": seed}), Scorer())
        others.add(tuple(replayed(run)))
    assert len(others | {tuple(chosen)}) > 2
    assert {len(one) for one in others} == {3}


async def test_the_cap_is_what_the_ratio_says_and_nothing_is_scored_where_nothing_is_replayed(run, shown, with_):
    for ratio, rows, most in ((2.0, 3, 6), (0.5, 3, 1), (0.29, 100, 29), (0.0, 9, 0)):
        assert planned(run, changed(with_, ratio=ratio)).replay.cap(rows) == most
    scorer = Scorer()
    data = await prepared(run, changed(with_, ratio=0.0), scorer)
    assert (scorer.requests, data.current_rows, data.replayed_rows) == ([], 4, 0)


async def test_what_was_scored_before_the_end_came_is_not_asked_again(run, shown, with_):
    first = Scorer(broken=3)
    with pytest.raises(OSError, match="the machine is gone"):
        await prepared(run, with_, first)
    assert len(LogprobCache(run.action_logprobs, POLICY)) == 3
    with run.action_logprobs.open("ab") as file:
        file.write(b'{"policy":"model_2025')  # a crash in the middle of a line
    second, third = Scorer(), Scorer()
    data = await prepared(run, with_, second)
    assert len(second.requests) == 4
    assert not [one for one in second.requests if one in first.requests]
    assert await prepared(run, with_, third) == data.model_copy(update={"model_name": find_batch(run).model_name})
    assert third.requests == []


async def test_another_policy_scores_anew(run, shown, with_):
    await prepared(run, with_, Scorer())
    scorer = Scorer()
    await prepared(run, changed(with_, base_url="http://127.0.0.1:9/v1"), scorer)
    assert len(scorer.requests) == 7
    lines_ = run.action_logprobs.read_text().splitlines()
    assert {json.loads(line)["policy"] for line in lines_} == {POLICY, f"{POLICY} at http://127.0.0.1:9/v1"}


async def test_what_is_too_long_is_left_out(run, shown, with_, tokens):
    limit = len(tokenize_actions(talk(0), tokens)[1].after)  # after two turns; two states of three turns are longer
    data = await prepared(run, changed(with_, "data", max_row_tokens=limit), Scorer())
    assert counted(run, "actions") == {"too_long": 2}
    assert (data.current_rows, data.replayed_rows) == (4, 5)
    with pytest.raises(WebGymError, match="2 x too_long"):  # the state after the last action counts, too
        await prepared(run, changed(with_, "data", max_row_tokens=limit - 1), Scorer())


async def test_a_server_that_takes_nothing_is_told(run, shown, with_):
    class Refusing(Scorer):
        async def of(self, prompt, response):
            return None

    with pytest.raises(WebGymError, match="the server takes none of the 7 actions"):
        await prepared(run, with_, Refusing())


async def test_experience_of_pictures_alone_is_not_replayed_and_said(tmp_path, run, model):
    seen = RunDir(tmp_path / "seen")
    demonstrations(seen, model)
    seen.part("train", 0).unlink()
    store(seen, talk(1, CALL, ANSWER, pictures=(96,)))
    with_ = second_phase(run, model, experience(seen))
    run.part("train", 0).unlink()
    data = await prepared(run, with_, Scorer())
    assert (data.replayed_rows, dropped(run)["dropped_trajectories"]["pictures"]) == (0, 1)


async def test_states_have_the_pictures_that_they_are_served_with(run, model, tokens):
    with_ = second_phase(run, model)
    at_first = served(talk(5, CALL, ANSWER, pictures=(96,)), tokens)
    run.part("train", 1).unlink()
    store(run, at(at_first, 1))
    await prepared(run, with_, Scorer())
    first, second = [row for row in lines(run, "rows.jsonl") if not row["replayed"]]
    assert (first["images"], first["next_images"], first["next_sizes"]) == ([], second["images"], [[96, 32]])
    assert first["next_prompt"] == second["input_ids"][: second["mask"].index(1)]
    assert (second["last"], second["next_images"]) == (True, second["images"] * 2)
    assert len(second["next_prompt"]) > len(second["input_ids"])


def on_pages(number, version):
    """An episode on two web pages of which both a screenshot and the text are stored."""
    seen = [step(index).observation.model_copy(update={"html": f"<p> Page {index} </p>"}) for index in range(2)]
    steps = tuple(step(index, observation=page, response=f"# {index}") for index, page in enumerate(seen))
    return trajectory(number, steps=steps, prompt=PromptSpec(version=version), instruction=f"Find {number}.")


async def test_web_pages_are_read_as_text_whatever_pictures_are_stored(run, shown, model, tokens):
    with_ = second_phase(run, model, experience(shown))
    store(shown, on_pages(8, PromptVersion.WEBRL), on_pages(9, PromptVersion.VANILLA))
    run.part("train", 1).unlink()
    store(run, at(served(on_pages(5, PromptVersion.WEBRL), tokens), 1))
    data = await prepared(run, with_, Scorer())
    rows = lines(run, "rows.jsonl")
    assert (data.current_rows, data.replayed_rows, dropped(run)["dropped_trajectories"]["pictures"]) == (2, 4, 1)
    assert {tuple(row["images"]) for row in rows} == {()}
    after = tokens.tokenizer.decode(rows[1]["next_prompt"], skip_special_tokens=False)
    shown_page = "<|im_start|>user\nRound 2\n\n<p> Page 1 </p><|im_end|>\n<|im_start|>assistant\n"
    assert after.endswith(f"# 1<|im_end|>\n{shown_page}")


def test_what_decides_the_batch_is_in_its_digest(run, shown, with_, model):
    before = planned(run, with_)
    with open_index(run) as index:
        plan = plan_batch(run, with_, index, transitions=True)
        digest = plan.digest()
        assert digest == plan.digest()
    store(shown, talk(10, policy="oracle"))
    with open_index(run) as index:
        assert plan_batch(run, with_, index, transitions=True).digest() != digest
    assert before.replay.digest_parts() != planned(run, with_).replay.digest_parts()


async def test_the_batch_of_a_moved_run_and_of_an_older_version_is_up_to_date(run, with_, tmp_path):
    data = await prepared(run, with_, Scorer())
    assert {row["source"]["run"] for row in lines(run, "rows.jsonl") if row["replayed"]} >= {""}
    with open_index(run) as index:
        former = plan_batch(run, with_, index, transitions=True).digest(former=True)
        assert data.plan_digest != former
        write_json(run.rl_data / "rl.json", data.model_copy(update={"plan_digest": former}).facts())
        assert is_up_to_date(run, with_, index)
    write_json(run.rl_data / "rl.json", data.facts())
    moved = RunDir(run.root.rename(tmp_path / "moved"))
    with open_index(moved) as index:
        assert is_up_to_date(moved, with_, index)


def test_the_other_algorithms_replay_nothing(run, shown, with_, model):
    plan = planned(run, settings(model, "train.algorithm=grpo", experience(shown)))
    assert plan.replay is None
    assert "replay" not in plan.to_json()
    assert plan.how.merge_turns
