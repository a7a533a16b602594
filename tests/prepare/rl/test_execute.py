"""The batch as it is written: what the trainer reads, byte for byte, or nothing at all."""

import hashlib
import json
import shutil

import pytest

from tests.prepare.rl_builders import (
    ANSWER,
    CALL,
    GREEDY,
    PLAIN,
    changed,
    changed_generation,
    episode,
    line_of,
    sampled,
    served,
    settings,
    store,
    talk,
    write_plan,
)
from tests.records.builders import CRASHED, UNSOLVED
from webgym_cli.agent.client.policy import digest_tokens
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.errors import SettingsError, StoreError, WebGymError
from webgym_cli.prepare.rl import execute as stage
from webgym_cli.prepare.rl.drop_reasons import OWN_REASONS
from webgym_cli.prepare.rl.plan import plan_batch
from webgym_cli.store.index.build import rebuild
from webgym_cli.store.index.query import open_index
from webgym_cli.store.prepared import find_batch

CHAINS = "agent.num_chains=2"


def write(run, model, *overrides, sink=lambda event: None):
    with_ = settings(model, CHAINS, *overrides)
    with open_index(run) as index:
        plan = plan_batch(run, with_, index, transitions=with_.train.algorithm == "webrl")
        return stage.execute(plan, run, with_, sink)


def files(run):
    """The content of a batch; its training's name tells the time."""
    by_name = {path.name: path.read_bytes() for path in (run.root / "rl_data").iterdir()}
    record = json.loads(by_name.pop("rl.json"))
    assert record.pop("model_name").startswith("model_20")
    return by_name | {"rl.json": record}


def lines(run, name):
    return line_of(run.root / "rl_data" / name)


def dropped(run):
    return json.loads((run.root / "rl_data" / "dropped.json").read_text())


@pytest.fixture
def filled(run, tokens):
    """Two groups of two: one solves, one doesn't; one with a picture, one that crashed."""
    write_plan(run, *(episode(number, f"q{number // 2}") for number in range(4)))
    store(run, served(talk(0), tokens), served(talk(1, outcome=UNSOLVED), tokens))
    store(run, served(talk(2, CALL, ANSWER, pictures=(96,)), tokens), talk(3, outcome=CRASHED))
    return run


def test_the_files_say_what_was_served_and_sampled(filled, model, tokens):
    data = write(filled, model)
    rows, trajectories = lines(filled, "rows.jsonl"), lines(filled, "trajectories.jsonl")
    for number, reward in enumerate([1.0, 0.0, 1.0, None]):
        facts = {"id": f"train-0000-0000{number}", "number": number, "group": number // 2, "reward": reward}
        facts |= {"task": f"q{number}", "policy": "base", "greedy": False}
        known = {"success": None, "masked": "failure"}
        if reward is not None:
            known = {"success": reward == 1, "masked": None}
        assert trajectories[number] == facts | known
    places = [(row["number"], row["group"], row["step"], row["steps"]) for row in rows]
    assert (len(trajectories), places) == (4, [(0, 0, 0, [0, 1]), (1, 0, 0, [0, 1]), (2, 1, 0, [0, 1])])
    keys = "trajectory number group step steps input_ids mask logprobs images sizes version"
    for row in rows:
        assert list(row) == keys.split()
        produced = [token for token, mine in zip(row["input_ids"], row["mask"], strict=True) if mine]
        assert produced == [*sampled(tokens, CALL), *sampled(tokens, ANSWER)]
        first, second = len(sampled(tokens, CALL)), len(sampled(tokens, ANSWER))
        turns = ((1, first), (2, second))
        assert row["logprobs"] == [-turn / 8 - place / 1024 for turn, count in turns for place in range(count)]
    assert [row["sizes"] for row in rows] == [[], [], [[96, 32]]]
    sha256 = talk(2, CALL, ANSWER, pictures=(96,)).steps[1].observation.pictures[0].sha256
    assert [row["images"] for row in rows] == [[], [], [f"../screenshots/{sha256[:2]}/{sha256}.png"]]
    record = json.loads((filled.root / "rl_data" / "rl.json").read_text())
    assert (record.pop("model_name"), len(record.pop("plan_digest"))) == (data.model_name, 64)
    sampling = {"temperature": 1.0, "top_k": -1, "top_p": 1.0, "min_p": 0.0, "logprobs": "processed"}
    counts = {"trained": 3, "rows": 3, "tokens": sum(len(row["input_ids"]) for row in rows)}
    models = {"schema": 1, "iteration": 0, "policy": str(model), "model": str(model), "sampling": sampling}
    sha256 = hashlib.sha256((filled.root / "rl_data" / "rows.jsonl").read_bytes()).hexdigest()
    assert record == {**models, **counts, "trained_tokens": 3 * len(produced), "digest": sha256}
    assert find_batch(filled) == data


@pytest.mark.parametrize("merge", ["true", "false"])
def test_only_the_last_turn_is_trained_where_that_is_asked_for(filled, model, merge):
    write(filled, model)
    whole = lines(filled, "rows.jsonl")
    data = write(filled, model, "rl.data.train_on_last_turn=true", f"rl.data.merge_turns={merge}")
    rows = lines(filled, "rows.jsonl")
    assert (data.rows, [row["steps"] for row in rows]) == (3, [[1], [1], [1]])
    for row, all_turns in zip(rows, whole, strict=True):
        count = len(row["logprobs"])
        assert row["input_ids"] == all_turns["input_ids"]
        assert row["mask"] == [0] * (len(row["mask"]) - count) + [1] * count
        assert (len(row["mask"]), row["mask"][-count - 1]) == (len(row["input_ids"]), 0)
        assert all_turns["logprobs"][-count:] == row["logprobs"] != all_turns["logprobs"]
    assert data.trained_tokens == sum(len(row["logprobs"]) for row in rows)


def test_webrl_trains_every_turn(filled, model):
    with pytest.raises(SettingsError, match=r"rl\.data\.train_on_last_turn"):
        write(filled, model, "train.algorithm=webrl", "rl.data.train_on_last_turn=true")


def test_the_same_trajectories_give_the_same_bytes(filled, model, tmp_path):
    """Twice, over an index that was built anew, and over files that other writers wrote in another order."""
    write(filled, model)
    first = files(filled)
    rebuild(filled)
    write(filled, model)
    assert files(filled) == first
    part = filled.part("train", 0)
    result = part.read_text().splitlines(keepends=True)
    part.write_text("".join(result[2:]))
    filled.part("train", 0, 1).write_text("".join(reversed(result[:2])))
    write(filled, model)
    assert files(filled) == first


def test_what_can_not_be_proved_is_masked_and_counted(run, model, tokens):
    whole = [served(talk(number), tokens) for number in range(4)]
    other = changed_generation(whole[1], 1, prompt_token_digest=digest_tokens([1]))
    few = changed_generation(whole[2], 0, logprobs=(-0.5,))
    write_plan(run, *(episode(number) for number in range(4)))
    store(run, whole[0], other, few, changed(whole[3], 1, prompt_digest="1" * 64))
    events = []
    data = write(run, model, sink=events.append)
    assert [line["reward"] for line in lines(run, "trajectories.jsonl")] == [1.0, None, None, None]
    assert {row["trajectory"] for row in lines(run, "rows.jsonl")} == {"train-0000-00000"}
    reasons = ("prompt_changed", "prompt_tokens_changed", "logprobs_unusable")
    expected = {reason.value: int(reason in reasons) for reason in OWN_REASONS}
    assert dropped(run)["masked"] == events[-1]["masked"] == expected
    assert (dropped(run)["trained"], dropped(run)["trajectories"]) == (1, 4)
    assert (events[-1]["event"], events[-1]["digest"]) == ("rl_data", data.digest)
    assert [event["done"] for event in events if event["event"] == "rl_data_progress"] == [4]


def test_another_tokenizer_than_the_server_s_leaves_nothing_and_what_was_there(filled, model, tmp_path):
    write(filled, model)
    before = files(filled)
    other = shutil.copytree(model, tmp_path / "other")
    template = (other / "chat_template.jinja").read_text()
    (other / "chat_template.jinja").write_text(f"{template}Well:")
    with pytest.raises(WebGymError, match=r"\(3 .*prompt_tokens_changed\)"):
        write(filled, other)
    assert files(filled) == before
    assert [path.name for path in filled.root.iterdir() if "rl_data" in path.name] == ["rl_data"]


def test_log_probabilities_that_are_missing_leave_what_was_there(filled, model, tokens):
    write(filled, model)
    before = files(filled)
    lines_ = filled.part("train", 0).read_text().splitlines()
    value = json.loads(lines_[2])
    value["steps"][0]["generation"]["logprobs"] = None
    filled.part("train", 0).write_text("\n".join([*lines_[:2], json.dumps(value), lines_[3]]) + "\n")
    with pytest.raises(SettingsError, match=r"0 .*train-0000-00002"):
        write(filled, model)
    assert files(filled) == before


def test_a_picture_that_is_gone_masks_its_trajectory(filled, model):
    write(filled, model)
    (path,) = lines(filled, "rows.jsonl")[2]["images"]
    (filled.rl_data / path).write_bytes(b"other")
    assert write(filled, model).rows == 2
    assert dropped(filled)["masked"]["image_missing"] == 1
    assert [line["reward"] for line in lines(filled, "trajectories.jsonl")] == [1.0, 0.0, None, None]
    (filled.rl_data / path).unlink()
    (filled.rl_data / path).mkdir()
    with pytest.raises(StoreError, match="regular file"):  # not gone: as on a share that fails
        write(filled, model)


def test_a_row_that_is_too_long_masks_its_trajectory(filled, model):
    write(filled, model)
    longest = max(len(row["input_ids"]) for row in lines(filled, "rows.jsonl"))
    assert write(filled, model, f"rl.data.max_row_tokens={longest}").rows == 3
    assert write(filled, model, f"rl.data.max_row_tokens={longest - 1}").rows == 2
    assert dropped(filled)["masked"]["too_long"] == 1


def test_a_line_that_is_damaged_after_it_was_indexed_masks_its_trajectory(filled, model):
    with_ = settings(model, CHAINS)
    with open_index(filled) as index:
        plan = plan_batch(filled, with_, index, transitions=False)
        content = bytearray(filled.part("train", 0).read_bytes())
        content[:1] = b"["
        filled.part("train", 0).write_bytes(content)
        events = []
        data = stage.execute(plan, filled, with_, events.append)
    assert data.rows == 2
    assert dropped(filled)["masked"]["damaged"] == len(dropped(filled)["damaged_lines"]) == 1
    assert events[0]["event"] == "damaged"


def test_a_disk_that_refuses_is_told_in_one_line(filled, model):
    (filled.root / ".rl_data.new").write_text("in the way")
    with pytest.raises(StoreError, match=r"\.rl_data\.new: can't be written") as raised:
        write(filled, model)
    assert raised.value.hint
    assert find_batch(filled) is None


def test_greedy_episodes_keep_their_reward_and_have_no_rows(run, model, tokens):
    write_plan(run, *(episode(number, "a", greedy=number == 2) for number in range(3)))
    store(run, served(talk(0), tokens), served(talk(1), tokens))
    store(run, served(talk(2, outcome=UNSOLVED, sampling=GREEDY), tokens))
    data = write(run, model, "agent.greedy_chain=true")
    shown = [(line["group"], line["reward"], line["greedy"]) for line in lines(run, "trajectories.jsonl")]
    assert shown == [(0, 1.0, False), (0, 1.0, False), (0, 0.0, True)]
    assert [row["number"] for row in lines(run, "rows.jsonl")] == [0, 1]
    assert dropped(run)["greedy"] == 1
    assert data.sampling == PLAIN


def test_the_tiny_model_s_own_tokenizer_and_template(run, tiny_model_dir):
    """A conversation with a picture of the real processor's size, in one row; web-like windows in several."""
    own = ModelTokens(str(tiny_model_dir))
    write_plan(run, episode(0), episode(1))
    store(run, served(talk(0, CALL, CALL, ANSWER, pictures=(96, None)), own), served(talk(1), own))
    data = write(run, tiny_model_dir)
    rows = lines(run, "rows.jsonl")
    assert [row["steps"] for row in rows] == [[0, 1, 2], [0, 1]]
    text = own.tokenizer.decode(rows[1]["input_ids"], skip_special_tokens=False)
    assert text.endswith(f"<|im_start|>assistant\n{ANSWER}<|im_end|>")
    assert text.count("<|im_start|>assistant\n") == 2
    produced = [token for token, mine in zip(rows[1]["input_ids"], rows[1]["mask"], strict=True) if mine]
    assert own.tokenizer.decode(produced, skip_special_tokens=False) == f"{CALL}<|im_end|>{ANSWER}<|im_end|>"
    pads = rows[0]["input_ids"].count(own.tokenizer.token_to_id("<|image_pad|>"))
    assert pads == own.grid.tokens(96, 32) == 3
    assert data.tokens == sum(len(row["mask"]) for row in rows)
