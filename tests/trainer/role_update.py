"""The trainer in one process, on a tiny text model: log-probs, updates, interruptions."""

import contextlib
import io
import json
import unittest

import torch
from tiny import (
    Stopped,
    assert_same,
    log_of,
    options,
    plain_log_probs,
    scores,
    scratch,
    some_rows,
    stopping_before,
    text_model,
    train,
    usual,
    values,
    weights_of,
    write_batch,
)

from webgym_cli.trainer.__main__ import main
from webgym_cli.trainer.data import read_batch
from webgym_cli.trainer.options import TrainingError
from webgym_cli.trainer.ppo.batch_targets import load_targets
from webgym_cli.trainer.ppo.trainer import digest

check = unittest.TestCase()
WHOLE = {"actor": {"ppo_mini_batch_size": 3, "ppo_epochs": 2}}
"""Six steps: seven episodes in three mini-batches, twice."""


def trained_rows(folder):
    """Return the batch's rows that are learned from, as they stand in the file."""
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    return [row for row in rows if row["number"] != 6]


def test_log_probs_equal_a_plain_forward_pass():
    for tied in (False, True):
        with scratch() as place:
            model = text_model(place / "model", tied=tied)
            rewards = [1.0] * 6 + [None, 0.0]
            data = write_batch(place / "data", some_rows(), rewards=rewards, groups=[0] * 8, temperature=0.7)
            wanted = torch.cat(plain_log_probs(model, trained_rows(data), 0.7))
            for attention in ("sdpa", "eager"):
                for packed in (True, False):
                    given = {"attn_implementation": attention, "use_remove_padding": packed}
                    result = scores(place, model, model=given)
                    torch.testing.assert_close(result, wanted, atol=1e-5, rtol=1e-5)


def test_a_model_that_changes_its_output_layer_s_logits_is_refused():
    from transformers import AutoModelForCausalLM, Gemma2Config, GraniteConfig

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "head_dim": 8}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
    with scratch() as place:
        usual(place)
        for config, wanted in (
            (Gemma2Config(**sizes), "final_logit_softcapping=30.0"),
            (GraniteConfig(logits_scaling=8.0, **sizes), "logits_scaling=8.0"),
        ):
            AutoModelForCausalLM.from_config(config).save_pretrained(place / "changing")
            with check.assertRaisesRegex(TrainingError, f"changing: its config.json has {wanted}, .*=sft trains it"):
                scores(place, place / "changing")
        AutoModelForCausalLM.from_config(GraniteConfig(**sizes)).save_pretrained(place / "plain")
        assert len(scores(place, place / "plain"))


def test_a_model_that_mixes_packed_sequences_is_refused_and_padded_it_computes_each_alone():
    from transformers import AutoModelForCausalLM, Qwen3_5TextConfig

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "head_dim": 8}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8}
    sizes |= {"linear_num_value_heads": 4, "linear_value_head_dim": 8, "pad_token_id": 0}
    with scratch() as place:
        _, data = usual(place)
        AutoModelForCausalLM.from_config(Qwen3_5TextConfig(**sizes)).save_pretrained(place / "mixing")
        with check.assertRaisesRegex(TrainingError, "its linear_attention layers .*use_remove_padding=false"):
            train(place, model={"path": str(place / "mixing"), "attn_implementation": "eager"})
        wanted = torch.cat(plain_log_probs(place / "mixing", trained_rows(data)))
        padded = scores(place, place / "mixing", model={"use_remove_padding": False})
        torch.testing.assert_close(padded, wanted, atol=1e-5, rtol=1e-5)


def test_a_model_whose_attention_is_not_sdpa_s_is_not_packed_with_it():
    from transformers import AutoModelForCausalLM, GptOssConfig, StableLmConfig

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
    with scratch() as place:
        _, data = usual(place)
        for config in (GptOssConfig(**sizes, num_local_experts=4, num_experts_per_tok=2), StableLmConfig(**sizes)):
            model = AutoModelForCausalLM.from_config(config)
            for name, value in model.named_parameters():
                value.data += "sinks" in name
            model.save_pretrained(place / "other")
            with check.assertRaisesRegex(TrainingError, "packed sequences need flash attention"):
                scores(place, place / "other", model={"attn_implementation": "sdpa"})
            wanted = torch.cat(plain_log_probs(place / "other", trained_rows(data)))
            eager = scores(place, place / "other", model={"attn_implementation": "eager"})
            torch.testing.assert_close(eager, wanted, atol=1e-5, rtol=1e-5)


def test_rewarded_answers_become_more_probable_and_others_less():
    with scratch() as place:
        model, _ = usual(place)
        before = scores(place, model)
        trained = train(place)
        change = scores(place, trained) - before
        counts = read_batch(place / "data").offsets.diff()
        signs = torch.repeat_interleave(torch.tensor([1.0, -1, 1, -1, -1, 1, 1]), counts)
        assert (change * signs).mean() > 0.01
        assert change[signs > 0].mean() > 0 > change[signs < 0].mean()


ESTIMATOR = """
from webgym_cli.config.estimators import advantage_estimator


@advantage_estimator("toy_centred")
def centred(given):
    import torch

    total = given.tokens.total(given.rewards)
    return (total - total[given.tokens.valid].mean())[given.tokens.trajectory].to(torch.float64)
"""


def test_an_estimator_of_a_plugin_file_trains():
    with scratch() as place:
        usual(place)
        (place / "mine.py").write_text(ESTIMATOR)
        (place / "other.py").write_text("import a_library_that_is_not_here")
        plugins = [str(place / "other.py"), str(place / "mine.py")]
        outcome = values(place, algorithm={"adv_estimator": "toy_centred"}) | {"plugins": plugins}
        (place / "launch.json").write_text(json.dumps(outcome))
        assert main([str(place / "launch.json")]) == 0
        check.assertAlmostEqual(log_of(place)[-1]["critic/advantages/max"], 1 - 4 / 7, 5)
        unknown = outcome | {"plugins": plugins[:1], "algorithm": {"adv_estimator": "unheard_of"}}
        (place / "unknown.json").write_text(json.dumps(unknown))
        with contextlib.redirect_stderr(io.StringIO()) as output:
            assert main([str(place / "unknown.json")]) == 1
        assert "other.py can't be imported" in output.getvalue()


def test_packed_equals_padded_however_it_is_divided():
    variants = [
        {"model": {"use_remove_padding": True}},
        {"model": {"use_remove_padding": False}},
        {"actor": {"ppo_micro_batch_size_per_gpu": 1}},
        {"actor": {"ppo_max_token_len_per_gpu": 16}, "model": {"logprob_chunk": 3}},
        {"model": {"enable_gradient_checkpointing": True}},
    ]
    with scratch() as place:
        usual(place)
        traineds = []
        for number, given in enumerate(variants):
            actor = {"ppo_mini_batch_size": 3, **given.get("actor", {})}
            given = {**given, "actor": actor, "trainer": {"output_dir": str(place / f"out{number}")}}
            traineds.append(train(place, **given))
        before = weights_of(place / "model")["model.layers.0.mlp.up_proj.weight"]
        assert (weights_of(traineds[0])["model.layers.0.mlp.up_proj.weight"] - before).abs().max() > 1e-3
        for other in traineds[1:]:
            assert_same(traineds[0], other, atol=2e-5, rtol=1e-4)


def test_an_interrupted_training_goes_on_bit_for_bit():
    with scratch() as place:
        usual(place)
        whole = train(place, **WHOLE)
        cut = {**WHOLE, "trainer": {"output_dir": str(place / "cut"), "save_freq": 2}}
        for number in (1, 3, 5):
            with stopping_before(number), check.assertRaises(Stopped):
                train(place, **cut)
        trained = train(place, **cut)
        assert trained.name == whole.name == "checkpoint-6"
        assert_same(whole, trained, atol=0, rtol=0)
        lines, wanted = log_of(place, "cut"), log_of(place)
        assert [line["current_steps"] for line in lines] == [1, 2, 3, 4, 5, 6, 6]
        for line, other in zip(lines[:6], wanted[:6], strict=True):
            assert line.keys() == other.keys()
            assert [name for name in line if "time" not in name and line[name] != other[name]] == []
        files = sorted(path.name for path in (place / "cut").iterdir())
        assert files == ["checkpoint-6", "lessons.safetensors", "trainer_log.jsonl"]


def test_an_interrupted_training_goes_on_after_its_run_was_moved_or_by_a_newer_version():
    for kind in ("moved", "newer"):
        with scratch() as place:
            run = place / "run"
            usual(run)
            out = {"trainer": {"output_dir": str(run / "checkpoints/n.partial")}}
            with stopping_before(4), check.assertRaises(Stopped):
                train(run, **WHOLE, **out)
            state = run / "checkpoints/n.partial/state-4/state.json"
            if kind == "moved":
                run = run.rename(place / "elsewhere")
                out = {"trainer": {"output_dir": str(run / "checkpoints/n.partial")}}
            else:
                given = options(run, **WHOLE, **out)
                former = digest(given, read_batch(run / "data"), former=True)
                state.write_text(json.dumps({"digest": former, "step": 4}))
                targets = load_targets(state.parents[1], digest(given, read_batch(run / "data")))
                targets.save(state.parents[1], former)
            with stopping_before(3):  # the steps before aren't made again
                assert train(run, **WHOLE, **out).name == "checkpoint-6"


def test_a_finished_training_is_left_as_it_is_and_another_is_made_anew():
    with scratch() as place:
        usual(place)
        trained = train(place)
        written = (trained / "model.safetensors").stat().st_mtime_ns
        assert train(place) == trained
        assert (trained / "model.safetensors").stat().st_mtime_ns == written
        train(place, actor={"clip_ratio": 0.1})
        assert (trained / "model.safetensors").stat().st_mtime_ns > written


def test_the_log_has_the_trainer_s_shape_and_the_metrics_names():
    with scratch() as place:
        usual(place)
        train(place, **WHOLE)
        *steps, last = log_of(place)
        assert [(line["current_steps"], line["total_steps"]) for line in steps] == [(n, 6) for n in range(1, 7)]
        for name in ("loss", "lr", "epoch", "percentage", "elapsed_time", "remaining_time", "actor/entropy"):
            assert all(name in line for line in steps)
        assert (steps[2]["epoch"], steps[2]["percentage"], steps[2]["lr"]) == (1.0, 50.0, 0.01)
        assert abs(steps[0]["actor/ppo_kl"]) < 1e-6 < abs(steps[5]["actor/ppo_kl"])
        assert "loss" not in last and last["percentage"] == 100
        assert last["critic/score/mean"] == 4 / 7 and last["critic/score/max"] == 1
        assert last["response/aborted_ratio"] == 1 / 8
        assert abs(last["rollout_corr/log_prob_difference"]) < 1e-5 and last["rollout_corr/capped"] == 0
        for name in ("actor/grad_norm", "critic/advantages/mean", "response_length/mean", "prompt_length/max"):
            assert name in last
        for name in ("step", "old_log_prob", "adv", "update_actor", "save_checkpoint"):
            assert last[f"timing_s/{name}"] >= 0
        assert last["perf/throughput"] > 0


def test_stale_data_is_weighed_and_the_sampler_s_log_probs_can_be_taken():
    with scratch() as place:
        usual(place)
        data = place / "data"
        rows = [json.loads(line) for line in (data / "rows.jsonl").read_text().splitlines()]
        for row in rows:
            row.pop("logprobs")
        kept = {"rewards": [1.0, 0, 1, 0, 0, 1, None, 1], "groups": [0] * 4 + [1] * 4}
        write_batch(data, rows, **kept)  # log-probs of -9: from elsewhere
        train(place)
        assert log_of(place)[-1]["rollout_corr/capped"] > 0
        train(place, actor={"recompute_old_log_probs": False}, trainer={"output_dir": str(place / "taken")})
        taken = log_of(place, "taken")
        assert taken[-1]["rollout_corr/log_prob_difference"] == 0
        assert taken[0]["actor/ppo_kl"] != 0


def test_remax_compares_with_the_greedy_episode():
    with scratch() as place:
        rows = some_rows(6)
        model = text_model(place / "model")
        rewards, groups = [1.0, 0.0, 0.25, 1.0, 0.5, 1.0], [0, 0, 0, 1, 1, 2]
        write_batch(place / "data", rows, rewards=rewards, groups=groups, greedy={2, 4}, model=model)
        train(place, algorithm={"adv_estimator": "remax"})
        last = log_of(place)[-1]
        assert (last["critic/advantages/max"], last["critic/advantages/min"]) == (0.75, -0.25)
        assert last["critic/score/mean"] == 2 / 3  # without the group of one, which has no greedy episode


def test_a_training_that_diverges_and_a_row_that_is_too_long_are_told():
    with scratch() as place:
        usual(place)
        with check.assertRaisesRegex(TrainingError, r"the training diverged; lower actor.optim.lr"):
            train(place, actor={"ppo_mini_batch_size": 1, "optim": {"lr": 1e30}, "grad_clip": 1e9})
        assert not list((place / "out").glob("checkpoint-*"))
        with check.assertRaisesRegex(TrainingError, r"line \d: \d+ tokens, 10 go .*ppo_max_token_len_per_gpu to 1"):
            train(place, actor={"ppo_max_token_len_per_gpu": 10})


def test_states_of_another_training_are_not_gone_on_from():
    with scratch() as place:
        usual(place)
        trained = train(place)
        _, data = usual(place, seed=8)
        carried = {"carry_state": str(trained / "rl_state"), "output_dir": str(place / "next")}
        train(place, trainer=carried)
        assert read_batch(data).digest
        with check.assertRaisesRegex(TrainingError, "states.pt: is missing"):
            train(place, trainer={"carry_state": str(place / "data"), "output_dir": str(place / "no")})
        with check.assertRaisesRegex(TrainingError, "holds other weights"):
            train(place, model={"lora_rank": 2}, trainer={**carried, "output_dir": str(place / "lora")})


def test_the_command_says_in_a_line_what_is_wrong():
    with scratch() as place:
        usual(place)
        given = {"data": str(place), "model": {"path": str(place)}, "trainer": {"output_dir": str(place)}}
        for values_, wanted in (
            ({"data": "x", "giraffe": 1}, f"{place}/c.json: giraffe: unknown setting \\(and 2 more\\)"),
            (given, f"{place}/rl.json: can't be read.*"),
            (given | {"data": str(place / "data")}, f"{place}: is no model that can be trained.*"),
        ):
            (place / "c.json").write_text(json.dumps(values_))
            with contextlib.redirect_stderr(io.StringIO()) as output:
                assert main([str(place / "c.json")]) == 1
            check.assertRegex(output.getvalue(), rf"\Awebgym: {wanted}\n\Z")
        with contextlib.redirect_stderr(io.StringIO()):
            assert main([]) == 1
