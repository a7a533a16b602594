"""Settings that have no effect without another one."""

from tests.tables import each
from webgym_cli.config.load import load
from webgym_cli.config.partners import list_ineffective

CORRECTION = "rl.algorithm.rollout_correction.rollout_is"


@each(
    ("given", "partner"),
    [
        ("judge.protocol=webgym2", "judge.base_url=http://h/v1"),
        ("judge.model=m", "judge.base_url=scripted"),
        ("judge.votes=3", "judge.base_url=scripted"),
        ('judge.jobs={"key_points": {"base_url": "http://h/v1"}}', "judge.base_url=scripted"),
        ('tasks.difficulty_ratio={"easy": 1, "hard": 1}', "tasks.sampler=ratio"),
        ("rollout.completion_grace=5", "rollout.completion_threshold=0.9"),
        ("rollout.ray_address=h:6379", "rollout.executor=ray"),
        ("rollout.ray_cpus=2", "rollout.executor=ray"),
        ("train.nodes=2", "train.executor=ray"),
        ("loop.max_staleness=2", "loop.mode=async"),
        ("loop.stale=drop", "loop.mode=async"),
        ("rl.actor.kl_loss_coef=0.1", "rl.actor.use_kl_loss=true"),
        ("rl.algorithm.kl_ctrl.type=adaptive", "rl.algorithm.use_kl_in_reward=true"),
        ("loop.demonstration_episodes=9", "loop.demonstration_iterations=1"),
        ("algorithm_config.learning_rate=0.1", "loop.demonstration_iterations=1"),
        ("algorithm_config.cutoff_len=512", "loop.demonstration_iterations=1"),
        ("algorithm_config.report_to=none", "loop.demonstration_iterations=1"),
        ("algorithm_config.eval_steps=5", "algorithm_config.do_eval=true"),
        ("rl.webrl.beta=0.5", "train.algorithm=webrl"),
    ],
)
def test_a_setting_without_its_partner_is_named(given, partner):
    notes = list_ineffective(load(overrides=["train.algorithm=grpo", given]))
    assert len(notes) == 1
    assert notes[0].startswith(given.partition("=")[0]) and partner.partition("=")[0].rpartition(".")[0] in notes[0]
    assert list_ineffective(load(overrides=["train.algorithm=grpo", given, partner])) == []


@each(
    ("given", "decides", "without", "with_it"),
    [
        ("rl.actor.grad_clip=0.5", "train.algorithm", "sft", "grpo"),
        ("algorithm_config.lora_alpha=4", "algorithm_config.finetuning_type", "full", "lora"),
        ("algorithm_config.warmup_steps=5", "algorithm_config.lr_scheduler_type", "constant", "linear"),
        ("rl.data.train_on_last_turn=true", "train.algorithm", "sft", "grpo"),
        ("rl.actor.loss_mode=cispo", "train.algorithm", "webrl", "grpo"),
        ("rl.critic.cliprange_value=0.2", "train.algorithm", "grpo", "gae"),
        ("rl.trainer.critic_warmup=2", "train.algorithm", "gigpo", "gae"),
        ("rl.algorithm.gamma=0.9", "train.algorithm", "rloo", "gigpo"),
        ("rl.algorithm.lam=0.9", "train.algorithm", "gigpo", "gae"),
        ("rl.algorithm.norm_adv_by_std_in_grpo=false", "train.algorithm", "rloo", "grpo"),
        ("rl.algorithm.step_advantage_w=2", "train.algorithm", "grpo", "gigpo"),
        ("rl.ref.path=runs/a", "rl.actor.use_kl_loss", "false", "true"),
        ("rl.model.lora_alpha=32", "rl.model.lora_rank", "0", "8"),
        ("rl.actor.clip_ratio=0.1", "rl.actor.clip_ratio_low", "0.2", "null"),
        ("rl.actor.clip_ratio_c=10", "rl.actor.loss_mode", "cispo", "vanilla"),
        ("rl.actor.loss_scale_factor=100", "rl.actor.loss_agg_mode", "token-mean", "seq-mean-token-sum-norm"),
        ("rl.algorithm.kl_ctrl.horizon=9", "rl.algorithm.kl_ctrl.type", "fixed", "adaptive"),
        (f"{CORRECTION}_threshold=3", CORRECTION, "none", "sequence"),
        (f"{CORRECTION}=sequence", "rl.actor.recompute_old_log_probs", "false", "true"),
        ("rollout.max_parse_errors=3", "rollout.agent", '"python agent.py"', '""'),
    ],
)
def test_a_setting_of_a_training_that_does_not_read_it_is_named(given, decides, without, with_it):
    base = ["train.algorithm=grpo", "loop.demonstration_iterations=1", "rl.actor.clip_ratio_high=0.3", given]
    if not given.startswith("rl.ref"):
        base.append("rl.algorithm.use_kl_in_reward=true")
    key = given.partition("=")[0]
    notes = list_ineffective(load(overrides=[*base, f"{decides}={without}"]))
    assert [note for note in notes if key in note and f"{decides} is " in note]
    notes = list_ineffective(load(overrides=[*base, f"{decides}={with_it}"]))
    assert not [note for note in notes if key in note]


@each("name", ["arithmetic", "cispo", "dapo", "demo-rl", "dr-grpo", "gigpo", "gspo", "webrl"])
def test_a_shipped_file_has_no_setting_without_effect(name):
    assert list_ineffective(load([name])) == []


def test_settings_with_an_effect_have_no_note():
    assert list_ineffective(load()) == []
    assert list_ineffective(load(overrides=["rollout.ray_address=h:6379", "train.executor=ray"])) == []
    assert list_ineffective(load(overrides=["train.nodes=1"])) == []


def test_a_reset_that_no_episode_starts_with_is_named():
    site = ["sites.desk.url=http://desk", "sites.desk.reset=./reset.sh"]
    assert list_ineffective(load(overrides=site)) == ['sites.desk.reset: no effect: sites.desk.isolation is "serial"']
    for isolation in ("reset", "tenant"):
        assert list_ineffective(load(overrides=[*site, f"sites.desk.isolation={isolation}"])) == []
