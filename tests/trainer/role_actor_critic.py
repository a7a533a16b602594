"""A phase of WebRL through the whole trainer, against plain sums with transformers."""

import json
import unittest
from pathlib import Path

import torch
from episodes import (
    PLAIN,
    adam,
    learned_rows,
    phase,
    plain_critic,
    plain_logits,
    plain_sums,
    plain_values,
    prompt,
    steps,
    webrl,
)
from tiny import (
    ALONE,
    Stopped,
    assert_same,
    log_of,
    options,
    scratch,
    several,
    stopping_before,
    train,
    weights_of,
    written,
)

from webgym_cli.trainer.data import read_batch
from webgym_cli.trainer.options import TrainingError
from webgym_cli.trainer.ppo.batch_targets import load_targets
from webgym_cli.trainer.webrl import webrl_batch
from webgym_cli.trainer.webrl.webrl_batch import collect_states
from webgym_cli.trainer.webrl.webrl_trainer import WebRLTrainer

check = unittest.TestCase()
HERE = Path(__file__).resolve().parent
SHIPPED = HERE.parents[1] / "configs" / "deepspeed"
RELEASED = {"webrl": {"objective": "released"}}
CLOSE = {"atol": 2e-5, "rtol": 1e-4}


def targets_of(folder):
    """Return what a training kept of its lessons."""
    trainer_state = json.loads(next(folder.glob("checkpoint-*/trainer_state.json")).read_text())
    return load_targets(folder, trainer_state["digest"]).tensors


def by_hand(objective, value, after, left):
    """Return the advantages of seven actions: three of a success, two of a failure, a replayed one, half a success."""
    last = [False, False, True, False, True, True, True]
    final = [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    largests = []
    for v, nv, ends, outcome, steps_left in zip(value.tolist(), after.tolist(), last, final, left, strict=True):
        if objective == "paper":
            reward, nv = (outcome, 0.0) if ends else (0.0, nv)
            largests.append(0.3 * (reward + nv - v) + 0.7 * (outcome - v))
        else:
            returned = sum(0.9**step * outcome for step in range(steps_left))
            largests.append(max(-1.0, min(1.0, nv - v - 0.05 + outcome + returned)))
    return torch.tensor(largests)


def loss_by_hand(objective, sums, reference, lengths, advantages):
    """Return the actor's loss, action by action."""
    if objective == "paper":
        return ((2.0 * (sums - reference) - advantages) ** 2).mean()
    parts = []
    for now, was, length, advantage in zip(sums, reference, lengths, advantages, strict=True):
        x = (now - was) / length
        limit = 5.0 if torch.exp(was / length) >= 0.8 else 1.0
        b = limit if x == 0 else min(limit, 1 / abs(float(x)))
        distance = (b * x - 1).abs()
        smooth = 0.5 * distance**2 if distance < 1 else distance - 0.5
        parts.append(smooth / b if advantage >= 0 else 0 * x)
    return torch.stack(parts).mean()


def compare(objective):
    """Train a second phase, and do the same with transformers: critic, values, advantages, actor."""
    from transformers import AutoModelForCausalLM

    fields = {"objective": objective, "beta": 2.0, "lam": 0.3}
    rows, success = learned_rows()
    with scratch() as place:
        model, _ = phase(place)
        first = train(place, **webrl(trainer={"output_dir": str(place / "first")}))
        fields["critic_epochs"] = 2
        given = webrl(webrl=fields, actor={"ppo_epochs": 2}, critic={"path": str(first / "critic")})
        actual = train(place, **given)

        body, heads = plain_critic(first / "critic")
        learner = adam([*body.parameters(), *heads.parameters()])
        states, outcome = [prompt(row) for row in rows], success
        if objective == "released":
            states, outcome = states + [row["next_prompt"] for row in rows], torch.cat([success, success])
        for line in log_of(place)[:2]:
            logits = plain_logits(body, heads, states).log_softmax(-1)
            loss = -sum(head[torch.arange(len(states)), outcome.long()].sum() for head in logits) / len(rows)
            check.assertAlmostEqual(line["critic/loss"], float(loss), places=4)
            right = (logits.exp()[..., 1].min(0).values >= 0.5) == outcome
            check.assertAlmostEqual(line["critic/accuracy"], float(right.double().mean()), places=6)
            learner.zero_grad()
            loss.backward()
            learner.step()
        trained, trained_heads = plain_critic(actual / "critic")
        own = [*trained.parameters(), *trained_heads.parameters()]
        for mine, theirs in zip(own, learner.param_groups[0]["params"], strict=True):
            torch.testing.assert_close(mine, theirs, **CLOSE)

        ends = ([prompt(row) for row in rows], [row["next_prompt"] for row in rows])
        value, after = (plain_values((body, heads), states) for states in ends)
        advantages = by_hand(objective, value, after, [3, 2, 1, 2, 1, 1, 1])
        lessons = targets_of(place / "out")
        torch.testing.assert_close(lessons["advantages"], advantages, atol=1e-4, rtol=1e-3)

        actor = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        reference = plain_sums(actor, rows).detach()
        torch.testing.assert_close(lessons["reference"], reference, atol=1e-4, rtol=1e-4)
        learner = adam(actor.parameters())
        lengths = [sum(row["mask"]) for row in rows]
        for line in log_of(place)[2:4]:
            sums = plain_sums(actor, rows)
            loss = loss_by_hand(objective, sums, reference, lengths, advantages)
            check.assertAlmostEqual(line["actor/loss"], float(loss), places=3)
            check.assertAlmostEqual(line["actor/log_ratio"], float((sums - reference).mean()), places=3)
            learner.zero_grad()
            loss.backward()
            learner.step()
        result = AutoModelForCausalLM.from_pretrained(actual, dtype=torch.float32)
        for mine, theirs in zip(result.parameters(), actor.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=1e-2)


def test_the_papers_phase_by_hand():
    compare("paper")


def test_the_released_phase_by_hand():
    compare("released")


def test_values_are_the_same_packed_and_padded_on_either_side():
    with scratch() as place:
        phase(place)
        critic = train(place, **webrl()) / "critic"
        wanted = None
        for packed in (True, False):
            for most in (None, 1):
                given = webrl(model={"use_remove_padding": packed}, critic={"path": str(critic)})
                given["actor"] = {**PLAIN, "ppo_micro_batch_size_per_gpu": most}
                trainer = WebRLTrainer(options(place, **given), ALONE)
                worker = trainer._judging(trainer._start(None))
                score = worker.score(trainer.engines["critic"], lambda logits: logits.softmax(-1)[..., 1].amin(1))
                if wanted is None:
                    prompts = [row.input_ids[:-1].tolist() for row in trainer.states.rows]
                    wanted = plain_values(plain_critic(critic), prompts)
                    assert len({*map(len, prompts)}) > 2 and wanted.std() > 1e-3
                torch.testing.assert_close(score, wanted, atol=1e-5, rtol=1e-5)


def test_nothing_depends_on_how_a_mini_batch_is_divided():
    variants = [
        {"model": {"use_remove_padding": False}},
        {"actor": {"ppo_micro_batch_size_per_gpu": 1}},
        {"actor": {"ppo_max_token_len_per_gpu": 12}, "model": {"logprob_chunk": 2}},
    ]
    for objective in ("paper", "released"):
        with scratch() as place:
            phase(place)
            fields = {"webrl": {"objective": objective}}
            whole = train(place, **webrl(**fields, actor={"ppo_mini_batch_size": 4}))
            assert whole.name == "checkpoint-4"
            before = weights_of(place / "model")["model.layers.0.mlp.up_proj.weight"]
            assert (weights_of(whole)["model.layers.0.mlp.up_proj.weight"] - before).abs().max() > 1e-3
            for number, given in enumerate(variants):
                actor = {"ppo_mini_batch_size": 4, **given.get("actor", {})}
                output = {"output_dir": str(place / f"out{number}")}
                other = train(place, **webrl(**fields, **{**given, "actor": actor, "trainer": output}))
                assert_same(whole, other, **CLOSE)
                assert_same(whole / "critic", other / "critic", **CLOSE)


def test_an_interrupted_phase_goes_on_bit_for_bit():
    with scratch() as place:
        phase(place)
        given = webrl(actor={"ppo_mini_batch_size": 3}, webrl={"critic_epochs": 1})
        whole = train(place, **given)
        assert whole.name == "checkpoint-6"  # three of the critic, three of the actor
        cut = {**given, "trainer": {"output_dir": str(place / "cut"), "save_freq": 2}}
        for number in (1, 3, 3, 4, 5):
            with stopping_before(number, WebRLTrainer), check.assertRaises(Stopped):
                train(place, **cut)
        trained = train(place, **cut)
        assert_same(whole, trained, atol=0, rtol=0)
        assert_same(whole / "critic", trained / "critic", atol=0, rtol=0)
        lines, wanted = log_of(place, "cut"), log_of(place)
        assert [line["current_steps"] for line in lines] == [1, 2, 3, 4, 5, 6, 6]
        for line, other in zip(lines, wanted, strict=True):
            kept = [name for name in other if "time" not in name and "timing" not in name and "throughput" not in name]
            assert [line[name] for name in kept] == [other[name] for name in kept]
        assert train(place, **cut) == trained


def test_lost_lessons_are_not_made_up_from_an_actor_that_has_learned():
    with scratch() as place:
        phase(place)
        given = webrl(actor={"ppo_mini_batch_size": 3})
        whole = train(place, **given)
        cut = {**given, "trainer": {"output_dir": str(place / "cut")}}
        with stopping_before(5, WebRLTrainer), check.assertRaises(Stopped):
            train(place, **cut)
        (place / "cut" / "lessons.safetensors").unlink()
        assert_same(whole, train(place, **cut), atol=0, rtol=0)


def test_several_processes_and_deepspeed_equal_one():
    with scratch() as place:
        phase(place)
        given = webrl(**RELEASED, actor={"ppo_mini_batch_size": 4, "ppo_max_token_len_per_gpu": 12})
        trained = train(place, **given)
        zero = {"deepspeed": str(SHIPPED / "ds_config_cpu_zero3.json")}
        two, cut = written(place, "two", **given), written(place, "cut", **given, trainer=zero)
        several(two, f"{cut}@1", f"{cut}@3", cut)
        for name in ("two", "cut"):
            assert_same(trained, place / name / trained.name, atol=5e-5, rtol=1e-3)
            assert_same(trained / "critic", place / name / trained.name / "critic", atol=5e-5, rtol=1e-3)
            for line, other in zip(log_of(place, name), log_of(place), strict=True):
                for key in ("critic/loss", "critic/accuracy", "actor/loss", "actor/log_ratio", "critic/auc"):
                    assert (key in line) == (key in other)
                    assert abs(line.get(key, 0) - other.get(key, 0)) < 1e-4, (key, line, other)


def test_a_phase_goes_on_from_the_one_before_it():
    with scratch() as place:
        phase(place)
        first = train(place, **webrl())
        carried = {"carry_state": str(first / "rl_state"), "output_dir": str(place / "next")}
        given = webrl(model={"path": str(first)}, critic={"path": str(first / "critic")}, trainer=carried)
        second = train(place, **given)
        rows = [log_of(place, name)[0]["critic/loss"] for name in ("out", "next")]
        assert rows[1] < rows[0]
        assert log_of(place)[1]["actor/log_ratio"] == 0 == log_of(place, "next")[1]["actor/log_ratio"]
        assert weights_of(second).keys() == weights_of(first).keys()


def test_an_adapter_is_trained_and_merged_for_both():
    with scratch() as place:
        model, _ = phase(place)
        trained = train(place, **webrl(model={"lora_rank": 4}, actor={"ppo_epochs": 2}))
        assert weights_of(trained).keys() == weights_of(model).keys()
        first, second = log_of(place)[1:3]
        assert abs(first["actor/log_ratio"]) < 1e-5 < abs(second["actor/log_ratio"])
        before = weights_of(model)["model.layers.0.mlp.up_proj.weight"]
        for folder, name in ((trained, "model.layers"), (trained / "critic", "layers")):
            assert (weights_of(folder)[f"{name}.0.mlp.up_proj.weight"] - before).abs().max() > 1e-4


def test_what_is_told_of_a_phase():
    with scratch() as place:
        _, data = phase(place)
        head = json.loads((data / "rl.json").read_text())
        head["sampling"] |= {"top_k": 1}  # of replayed tokens most would have the probability 0
        (data / "rl.json").write_text(json.dumps(head))
        trained = train(place, **webrl(webrl={"beta": 0.5, "heads": 1}))
        result = json.loads((trained / "trainer_state.json").read_text())["webrl"]
        assert (result["objective"], result["beta"], result["lam"], result["heads"]) == ("paper", 0.5, 0.5, 1)
        critic, actor, last = log_of(place)
        assert {"loss", "lr", "critic/loss", "critic/accuracy", "critic/grad_norm"} <= critic.keys()
        assert {"actor/loss", "actor/log_ratio", "actor/entropy", "actor/grad_norm"} <= actor.keys()
        assert abs(critic["critic/loss"] - torch.tensor(2.0).log()) < 0.3  # about even, before it has learned
        assert (last["critic/loss"], last["actor/loss"]) == (critic["critic/loss"], actor["actor/loss"])
        assert (last["data/replayed"], last["response/aborted_ratio"]) == (1 / 7, 1 / 5)
        assert 0.5 < last["critic/auc"] <= 1 and 0 < last["critic/advantages/positive"] < 1
        assert last["critic/advantages/std"] > 0 and last["actor/reference_log_prob"] < 0
        assert {"timing_s/update_critic", "timing_s/update_actor", "timing_s/ref", "timing_s/values"} <= last.keys()
        files = sorted(path.name for path in (trained / "critic").iterdir())
        assert files == ["config.json", "model.safetensors", "outcome_heads.safetensors"]
        with check.assertRaisesRegex(TrainingError, "outcome_heads.safetensors: is of another kind of critic"):
            train(place, **webrl(critic={"path": str(trained / "critic")}))


def test_a_state_is_valued_once_and_counted_as_often_as_it_was_met():
    with scratch() as place:
        _, data = phase(place)
        batch = read_batch(data)
        states = collect_states(batch, ends=True)
        assert [len(states.rows), *states.before.tolist()] == [11, 0, 1, 2, 4, 5, 7, 9]
        assert states.after.tolist() == [1, 2, 3, 5, 6, 8, 10]
        visits = states.count_visits([0, 1, 3], webrl_batch.successes(batch), after=True)
        assert visits.tolist()[:7] == [[0, 1], [0, 2], [0, 1], [0, 0], [1, 0], [1, 0], [0, 0]]
        without = collect_states(batch, ends=False)
        assert (len(without.rows), without.after.tolist()) == (7, [1, 2, 2, 4, 4, 5, 6])


def test_how_well_values_tell_success_from_failure_by_hand():
    value = torch.tensor([0.9, 0.5, 0.5, 0.1])
    # three pairs of a success and a failure: 0.9 > 0.5, 0.9 > 0.1 ... (0.5, 0.5) counts half
    assert webrl_batch.auc(value, torch.tensor([True, True, False, False])) == 3.5 / 4
    assert webrl_batch.auc(value, torch.tensor([False, False, True, True])) == 0.5 / 4
    assert webrl_batch.auc(value, torch.ones(4).bool()) is None


def test_a_batch_that_is_not_webrl_s_is_refused_by_name():
    spoiled = [
        ("next_prompt", None, r"line 1: doesn't say which state it led to .*webgym prepare and train.algorithm=webrl"),
        ("next_prompt", [], "line 1: the prompt after it has no tokens"),
        ("mask", [0, 1, 0, 1], r"line 1: holds several steps"),
        ("next_images", ["a.png"], "line 1: 1 pictures after it, 0 sizes"),
        ("last", None, "line 1: not a sequence"),
    ]
    with scratch() as place:
        for key, value, wanted in spoiled:
            rows = steps()
            if value is None:
                del rows[0][key]
            else:
                rows[0][key] = value
            if key == "mask":
                rows[0]["input_ids"] = [1, 2, 3, 4]
            phase(place, rows)
            with check.assertRaisesRegex(TrainingError, wanted):
                train(place, **webrl())
