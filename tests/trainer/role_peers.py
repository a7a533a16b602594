"""Against the implementations of TRL, which the train role has, and of verl, which the tests put beside it."""

import unittest
from collections import defaultdict
from types import SimpleNamespace

import torch
from padded import flat, spread, tokens_of

from webgym_cli.config.rl import ActorSettings
from webgym_cli.trainer.experience import whiten
from webgym_cli.trainer.model.logprobs import token_log_probs
from webgym_cli.trainer.ppo import advantages as adv
from webgym_cli.trainer.ppo.kl import kl_estimate
from webgym_cli.trainer.ppo.objectives import BatchNormalizer, policy_loss, value_loss


def batch(rows=8, positions=20, observations=True):
    """Rows in groups of four; the policy's tokens are a prefix, with observations between them if wanted."""
    mask = torch.arange(positions)[None] < torch.randint(5, positions, (rows, 1))
    if observations:
        mask &= torch.rand(rows, positions) < 0.7
    mask[:, 0], mask[:, 1] = False, True
    group = torch.arange(rows) // 4
    return tokens_of(mask, torch.rand(rows), group), mask, group


def same(tokens, rows, theirs):
    torch.testing.assert_close(rows.float(), flat(tokens, theirs).float(), atol=1e-5, rtol=1e-4)


def grpo_trainer():
    """TRL 0.24 takes transformers 5's answers "(installed, version)" for a yes: it would import what isn't there."""
    from trl import import_utils

    for name, value in list(vars(import_utils).items()):
        if name.endswith("_available") and isinstance(value, tuple):
            setattr(import_utils, name, value[0])
    from trl import GRPOTrainer

    return GRPOTrainer


def trl_loss(completion_mask, log_probs, old, advantages, entropy, reference, kind, beta):
    """TRL's GRPO loss on our numbers: the trainer's own method, with the model's outputs given."""
    given = {"top_entropy_quantile": 1.0, "beta": beta, "importance_sampling_level": "token", "use_vllm": False}
    clips = {"epsilon_low": 0.2, "epsilon_high": 0.3, "args": SimpleNamespace(delta=3.0), "loss_type": kind}
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (log_probs, entropy),
        current_gradient_accumulation_steps=1,
        max_completion_length=25,
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(gather=lambda value: value, num_processes=1),
        _metrics=defaultdict(lambda: defaultdict(list)),
        **given,
        **clips,
    )
    inputs = dict.fromkeys(("prompt_ids", "prompt_mask", "completion_ids"), torch.zeros_like(completion_mask))
    inputs |= {"completion_mask": completion_mask, "num_items_in_batch": completion_mask.sum()}
    inputs |= {"ref_per_token_logps": reference, "old_per_token_logps": old, "advantages": advantages}
    return grpo_trainer()._compute_loss(trainer, None, inputs)


def test_the_objective_is_that_of_trl():
    tokens, mask, _ = batch(observations=False)
    padded = {name: torch.randn(8, 20) for name in ("log_probs", "old", "entropy")}
    # near enough: TRL doesn't bound the KL
    padded["reference"] = padded["log_probs"] + 2 * torch.rand(8, 20) - 1
    advantages = torch.randn(8)
    totals = BatchNormalizer(len(tokens.row), 8)
    modes = {"bnpo": "token-mean", "grpo": "seq-mean-token-mean", "dr_grpo": "seq-mean-token-sum-norm"}
    terms = {"clip_ratio_high": 0.3, "loss_scale_factor": 25, "use_kl_loss": True, "kl_loss_coef": 0.1}
    flat_ = {name: flat(tokens, padded[name]) for name in ("log_probs", "old", "reference")}
    for kind, mode in modes.items():
        options = ActorSettings(loss_agg_mode=mode, **terms)
        first = (flat_["log_probs"], flat_["old"], advantages[tokens.trajectory], tokens.row, totals)
        ours = policy_loss(*first, options, reference=flat_["reference"])
        theirs = trl_loss(mask.int(), **padded, advantages=advantages, kind=kind, beta=0.1)
        torch.testing.assert_close(ours.loss, theirs)


def test_whitening_log_probs_and_entropy_are_those_of_trl():
    from trl.core import masked_whiten
    from trl.trainer.utils import entropy_from_logits, selective_log_softmax

    tokens, mask, _ = batch()
    values = torch.randn(8, 20)
    same(tokens, whiten(flat(tokens, values)), masked_whiten(values, mask))
    hidden, weight, labels = torch.randn(8, 20, 16), torch.randn(50, 16), torch.randint(50, (8, 20))
    log_probs, entropy = token_log_probs(flat(tokens, hidden), weight, flat(tokens, labels), chunk=7)
    same(tokens, log_probs, selective_log_softmax(hidden @ weight.T, labels))
    same(tokens, entropy, entropy_from_logits(hidden @ weight.T))


def verl():
    try:
        from verl.trainer.ppo import core_algos
    except ImportError as error:
        raise unittest.SkipTest(f"verl can't be imported: {error}") from error
    return core_algos


def test_the_group_estimators_are_those_of_verl():
    core = verl()
    tokens, mask, group = batch()
    rewards = spread(tokens, adv.outcome(tokens), mask.shape).float()
    index = group.numpy()
    for scaled in (True, False):
        theirs = core.compute_grpo_outcome_advantage(rewards, mask.float(), index, norm_adv_by_std_in_grpo=scaled)[0]
        same(tokens, adv.grpo(tokens, adv.outcome(tokens), norm_adv_by_std_in_grpo=scaled), theirs)
    theirs = core.compute_rloo_outcome_advantage(rewards, mask.float(), index)[0]
    same(tokens, adv.rloo(tokens, adv.outcome(tokens)), theirs)


def test_the_token_estimators_are_those_of_verl():
    core = verl()
    tokens, mask, _ = batch()
    rewards, values = torch.randn(8, 20) * mask, torch.randn(8, 20)
    given, mask = flat(tokens, rewards), mask.float()
    greedy = torch.rand(8)
    same(tokens, adv.remax(tokens, given, greedy), core.compute_remax_outcome_advantage(rewards, greedy, mask)[0])
    advantages, returns = core.compute_gae_advantage_return(rewards, values, mask, 0.97, 0.9)
    result, found_returns = adv.gae(tokens, given, flat(tokens, values), gamma=0.97, lam=0.9)
    same(tokens, whiten(result), advantages)
    same(tokens, found_returns, returns)


def test_reinforce_plus_plus_is_that_of_verl_where_nothing_is_observed():
    core = verl()
    tokens, mask, _ = batch(observations=False)
    rewards = spread(tokens, adv.outcome(tokens), mask.shape).float()
    config = SimpleNamespace(gamma=0.9)
    theirs = core.compute_reinforce_plus_plus_outcome_advantage(rewards, mask.float(), config)[0]
    same(tokens, whiten(adv.reinforce_plus_plus(tokens, adv.outcome(tokens), gamma=0.9)), theirs)


def test_kl_and_the_critic_are_those_of_verl():
    core = verl()
    log_probs, reference = torch.randn(50), torch.randn(50)
    for kind in ("kl", "abs", "mse", "low_var_kl"):
        theirs = core.kl_penalty(log_probs, reference, kind)
        torch.testing.assert_close(kl_estimate(log_probs, reference, kind), theirs)
    tokens, mask, _ = batch()
    predicted, returns, values = torch.randn(3, 8, 20).unbind()
    totals = BatchNormalizer(len(tokens.row), 8)
    given = [flat(tokens, part) for part in (predicted, values, returns)]
    ours = value_loss(*given, tokens.row, totals, cliprange_value=0.3)
    loss, share = core.compute_value_loss(predicted, returns, values, mask.float(), 0.3)
    torch.testing.assert_close(ours.loss, loss)
    torch.testing.assert_close(ours.metrics["critic/vf_clipfrac"], share)


def test_the_objective_is_that_of_verl():
    core = verl()
    tokens, mask, _ = batch()
    log_probs, old, advantages = torch.randn(3, 8, 20).unbind()
    weights = torch.rand(8, 20)

    class Config(SimpleNamespace):
        def get(self, name, default):
            return getattr(self, name, default)

    config = Config(clip_ratio=0.2, clip_ratio_low=0.1, clip_ratio_high=0.3, clip_ratio_c=2.5, global_batch_info={})
    given = [flat(tokens, part) for part in (log_probs, old, advantages)]
    for mode in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum"):
        options = ActorSettings(clip_ratio_low=0.1, clip_ratio_high=0.3, clip_ratio_c=2.5, loss_agg_mode=mode)
        totals = BatchNormalizer(len(tokens.row), 8)
        ours = policy_loss(*given, tokens.row, totals, options, weights=flat(tokens, weights))
        theirs = (old, log_probs, advantages, mask.float(), mode, config, weights)
        loss, metrics = core.compute_policy_loss_vanilla(*theirs)
        torch.testing.assert_close(ours.loss, loss)
        for name in ("actor/pg_clipfrac", "actor/pg_clipfrac_lower", "actor/ppo_kl"):
            torch.testing.assert_close(float(ours.metrics[name]), metrics[name])


def test_gspo_and_cispo_are_those_of_verl():
    core = verl()
    tokens, mask, _ = batch()
    log_probs, old, advantages = (part / 10 for part in torch.randn(3, 8, 20).unbind())
    weights = torch.rand(8, 20)
    from verl.workers.config import ActorConfig

    clips, agg = {"clip_ratio_low": 0.02, "clip_ratio_high": 0.03}, "seq-mean-token-mean"
    config = ActorConfig(**clips, rollout_n=1, strategy="fsdp", use_dynamic_bsz=True)
    given = [flat(tokens, part) for part in (log_probs, old, advantages)]
    totals = BatchNormalizer(len(tokens.row), 8)
    for mode in ("gspo", "cispo"):
        options = ActorSettings(loss_mode=mode, loss_agg_mode=agg, **clips)
        ours = policy_loss(*given, tokens.row, totals, options, weights=flat(tokens, weights))
        theirs = core.get_policy_loss_fn(mode)(old, log_probs, advantages, mask.float(), agg, config, weights)
        torch.testing.assert_close(ours.loss, theirs[0])
