import json
import re
import subprocess
import sys

import pytest

from tests.forked import webgym
from tests.tables import each
from webgym_cli.config.foreign_names import FOREIGN, MOVED
from webgym_cli.config.load import (
    changed_frozen_keys,
    flat_values,
    flatten,
    known_keys,
    list_unused_variables,
    load,
    load_with_sources,
    parse_saved,
)
from webgym_cli.config.model import Settings
from webgym_cli.config.model_defaults import resolve_model_defaults
from webgym_cli.config.renamed import OPPOSITE, REMOVED, RENAMED, RenamedSettingWarning, current_name
from webgym_cli.errors import SettingsError


@pytest.fixture
def written(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


def test_later_layers_win_and_each_value_knows_its_source(written, monkeypatch):
    run = written("config.json", json.dumps({"rollout": {"episodes": 1, "concurrency": 1, "max_attempts": 1}}))
    first = written("a.yaml", "rollout: {concurrency: 2, max_attempts: 2, max_parse_errors: 2, test_episodes: 2}")
    second = written("b.yaml", "rollout: {test_episodes: 3, max_parse_errors: 3, completion_grace: 3}")
    monkeypatch.setenv("WEBGYM_ROLLOUT__MAX_PARSE_ERRORS", "4")
    monkeypatch.setenv("WEBGYM_ROLLOUT__COMPLETION_GRACE", "4")
    settings, sources = load_with_sources([first, second], ["rollout.completion_grace=5"], run_config=run)
    expected = {
        "episode_timeout": (1800.0, "default"),
        "episodes": (1, f"run {run}"),
        "concurrency": (2, f"file {first}"),
        "max_attempts": (2, f"file {first}"),
        "test_episodes": (3, f"file {second}"),
        "max_parse_errors": (4, "environment"),
        "completion_grace": (5.0, "-s rollout.completion_grace"),
    }
    assert {name: (getattr(settings.rollout, name), sources[f"rollout.{name}"]) for name in expected} == expected


def test_a_later_file_keeps_what_it_does_not_name(written):
    files = [written("a.yaml", "rollout: {train_max_steps: {easy: 3, hard: 4}}"), written("b.yaml", "seed: 2")]
    steps = load([*files], ["rollout.train_max_steps.hard=5"]).rollout.train_max_steps
    assert (steps.easy, steps.medium, steps.hard) == (3, 20, 5)


def test_overrides_are_json_or_text():
    settings = load(
        overrides=[
            "algorithm_config.deepspeed_config_filename=null",
            'browser.args=["--a", "--b"]',
            "log_config.run_name=a=b",
            "algorithm_config.bf16=false",
            'train.extra={"freeze_vision_tower": false}',
            "train.extra.flash_attn=fa2",
        ]
    )
    assert settings.algorithm_config.deepspeed_config_filename is None
    assert (settings.browser.args, settings.log_config.run_name) == (("--a", "--b"), "a=b")
    assert settings.algorithm_config.bf16 is False
    assert settings.train.extra == {"freeze_vision_tower": False, "flash_attn": "fa2"}


def test_the_environment_may_hold_a_section_or_a_value(monkeypatch):
    monkeypatch.setenv("WEBGYM_LOOP", '{"iterations": 7}')
    monkeypatch.setenv("WEBGYM_ROLLOUT__TRAIN_MAX_STEPS__EASY", "2")
    monkeypatch.setenv("WEBGYM_SEED", "9")
    monkeypatch.setenv("WEBGYM_RL__WEBRL__HEADS", "1")
    settings = load()
    assert (settings.loop.iterations, settings.rollout.train_max_steps.easy, settings.seed) == (7, 2, 9)
    assert settings.rl.webrl.heads == 1


REFUSED = {
    "rollout.concurency=1": "did you mean 'rollout.concurrency'?",
    "algoritm_config.learning_rate=1": "did you mean 'algorithm_config.learning_rate'?",
    "rollout.learning_rate=1": "did you mean 'algorithm_config.learning_rate'?",
    "sed=1": "did you mean 'seed'?",
    "rollout.train_max_steps.esy=1": "did you mean 'rollout.train_max_steps.easy'?",
    **dict.fromkeys(("rollout.episodes=many", "rollout.episodes=0", "rollout.episodes=null"), "rollout.episodes: "),
    "browser.args=[1]": "browser.args",
    "browser.sandbox=maybe": "browser.sandbox: ",
    "policy_config.top_p=1.5": "policy_config.top_p: ",
    "seed=-1": "seed: ",
    "seed=false": "seed: ",
    "sites.desk.login_hours=true": "sites.desk.login_hours: ",
    "tasks.difficulty_ratio.easy=true": "tasks.difficulty_ratio.easy: ",
    'cost.prices={"gpt-4.1": {"prompt": true, "completion": 1}}': "cost.prices.gpt-4.1.prompt: ",
    "rl.replay.window=[true,2]": "rl.replay.window.0: ",
    "rl.actor.optim.betas=[0.9,false]": "rl.actor.optim.betas.1: ",
    "train.extra=5": "train.extra: ",
    "judge.jobs.blocking.modl=x": "judge.jobs.blocking",
    # a setting of verl that is a constant here: what to use
    "actor_rollout_ref.rollout.enforce_eager=1": "--enforce-eager",
    "actor_rollout_ref.rollout.max_num_batched_tokens=1": "--max-num-batched-tokens",
    "critic.loss_agg_mode=1": "mean over tokens",
    # a setting of verl, AgentFly or WebGym: ours
    "env_config.test_difficulty_max_steps=[]": "'rollout.test_max_steps'",
    "algorithm.adv_estimator=1": "'train.algorithm'",
    "algorithm.gamma=1": "'rl.algorithm.gamma'",
    "algorithm.filter_groups.enable=1": "'rl.data.filter_groups.enable'",
    "actor_rollout_ref.actor.optim.lr=1": "'rl.actor.optim.lr'",
    "actor_rollout_ref.actor.policy_loss.loss_mode=1": "'rl.actor.loss_mode'",
    "actor_rollout_ref.rollout.n=1": "'agent.num_chains'",
    "actor_rollout_ref.rollout.val_kwargs.top_p=1": "'rollout.test_sampling.top_p'",
    "agent.init_config.tools=1": "'agent.tools'",
    "agent.run_config.generation_config.temperature=1": "'policy_config.temperature'",
    "agent.train_on_last_turn=1": "'rl.data.train_on_last_turn'",
    "+data.train_files=1": "'tasks.train'",
    "trainer.total_training_steps=1": "'loop.iterations'",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1": "'serve.tensor_parallel_size'",
    "trainer.critic_warmup=1": "'rl.trainer.critic_warmup'",
    "env_config.server_size=1": "'rollout.concurrency'",
    "env_config.train_difficulty_max_steps.easy=1": "'rollout.train_max_steps.easy'",
    "openai_config.evaluation.model=1": "'judge.model'",
}


@each("override", REFUSED)
def test_a_refused_assignment_is_named_with_its_key_and_what_to_use(override):
    with pytest.raises(SettingsError) as caught:
        load(overrides=[override])
    assert str(caught.value).startswith(f"-s {override.partition('=')[0]}")
    assert REFUSED[override] in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "key", "near"),
    [
        ("WEBGYM_SEEED", "seeed", "seed"),
        ("WEBGYM_SERVE_PORT", "serve_port", "serve.port"),
        ("WEBGYM_ROLOUT__EPISODES", "rolout.episodes", "rollout.episodes"),
        ("WEBGYM_ROLLOUT__EPISODE", "rollout.episode", "rollout.episodes"),
    ],
)
def test_an_unknown_variable_names_the_nearest(variable, key, near, monkeypatch):
    monkeypatch.setenv(variable, "1")
    with pytest.raises(SettingsError) as caught:
        load()
    assert f"unknown setting {key!r}; did you mean {near!r}?" in str(caught.value)
    assert str(caught.value).startswith("environment")


def test_a_variable_that_is_no_setting_of_ours_is_let_alone(monkeypatch):
    monkeypatch.setenv("WEBGYM_HOME", "/x")
    assert load() == resolve_model_defaults(Settings())


@pytest.mark.parametrize("variable", ["WEBGYM_ROLLOUT", "WEBGYM_TRAIN__EXTRA", "WEBGYM_BROWSER__ARGS"])
def test_a_variable_that_is_not_json_is_an_error_of_ours(variable, monkeypatch):
    monkeypatch.setenv(variable, "{not json")
    with pytest.raises(SettingsError, match=r"^environment.*" + variable.split("__")[0].split("_")[1].lower()):
        load()


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        ("rollout:\n  episods: 3\n", ": ", "'rollout.episodes'"),
        ("seed: 1\nrollout: {episodes: x}\n", ": ", "rollout.episodes: "),
        ("a: 1\nb: [1,\n", ":3: ", "YAML"),
        ("seed: 1\n\trollout: 2\n", ":2: ", "YAML"),
        ("a: 1\nb: c: d\n", ":2: ", "YAML"),
        ("seed: true\n", ": seed: ", "number"),
        ("browser:\n  executable:\n", ": browser.executable: ", "valid string"),
        ("browser: {executable: 5}\n", ": browser.executable: ", "valid string"),
        ("rl: {actor: {grad_clip: false}}\n", ": rl.actor.grad_clip: ", "greater than 0"),
        ("rl: {replay: {window: [true, 2]}}\n", ": rl.replay.window.0: ", "number"),
        ("sites:\n  no: {}\n  'no': {}\n", ":3: ", "no is given twice"),
        *((content, ": ", "mapping") for content in ("- a\n- b\n", "just text", "5")),
    ],
)
def test_a_refused_file_is_named_with_the_place(content, place, words, written):
    path = written("a.yaml", content)
    with pytest.raises(SettingsError) as caught:
        load([path])
    assert f"{path}{place}" in str(caught.value) and words in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"seed: \xff\xfe\x00")
    with pytest.raises(SettingsError, match=str(path)):
        load([path])


@pytest.mark.parametrize(
    ("content", "changed"), [("# nothing\n", {}), ("seed: 3\nrollout:\n  # episodes: 3\n", {"seed": 3})]
)
def test_what_is_commented_out_changes_nothing(written, content, changed):
    assert load([written("a.yaml", content)]) == resolve_model_defaults(Settings(**changed))


@each(
    ("override", "hint"),
    [
        ("plugins=a.py,b.py", "-s 'plugins=[FIRST, SECOND]'"),
        ("log_config.run_name=12", """-s 'log_config.run_name="TEXT"': as it is, the value is JSON"""),
        ("agent.tools=[1]", "webgym config show | grep -F agent.tools"),
        ("algorithm_config.warmup_steps=10%", "webgym config show | grep -F algorithm_config.warmup_steps"),
        ("sites.shop.login_hours=0", "webgym config show | grep -F sites.shop.login_hours"),
    ],
)
def test_a_value_of_another_kind_is_answered_with_how_it_is_written_or_where_to_look(override, hint):
    with pytest.raises(SettingsError) as caught:
        load(overrides=[override])
    assert caught.value.hint == hint


def test_numbers_of_gpus_are_their_names():
    given = load(overrides=["serve.gpus=[0]", 'train.gpus=[1, "GPU-5f3"]'])
    assert (given.serve.gpus, given.train.gpus) == (("0",), ("1", "GPU-5f3"))


@each(
    ("overrides", "words"),
    [
        *(([override], "section.key=value") for override in ("rollout", "=3", " =3")),
        (["train.extra=5", "train.extra.b=1"], "train.extra"),
        (["judge.jobs.facts.model=x"], "judge.jobs.facts"),
        (["policy_config.max_new_tokens=100", "serve.max_model_len=100"], "leaves no room"),
    ],
)
def test_assignments_without_a_key_or_at_odds_are_refused(overrides, words):
    with pytest.raises(SettingsError, match=re.escape(words)):
        load(overrides=overrides)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import webgym_cli.config.load as c; c.load()", "torch vllm playwright pydantic_settings jsonlines"),
        ("import webgym_cli.trainer.options", "pydantic_settings typer yaml torch"),
    ],
)
def test_loading_leaves_the_machine_learning_stack_alone_and_the_trainers_needs_pydantic_only(code, names):
    code = f"{code}; import sys; print(sys.modules.keys() & {set(names.split())})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


OLD_NAMES = {
    "algorithm_config.num_nodes": 2,
    "algorithm_config.warmup_ratio": 0.25,
    "browser.settle_seconds": 1.5,
    "filters.bands": ["easy"],
    "roles.device": "cpu",
    "serve.between_phases": "stop",
    "judge.max_tokens": 99,
    "generate.max_tokens": 99,
}


def test_every_old_name_has_a_setting_and_none_is_one():
    assert {current_name(key) for key in OLD_NAMES} <= known_keys().keys()
    for old, new in RENAMED.items():
        assert old not in known_keys()
        assert any(key == new or key.startswith(f"{new}.") or new.startswith(f"{key}.") for key in known_keys())


@pytest.mark.parametrize("key", OLD_NAMES)
def test_old_names_work_in_every_layer_with_a_note(key, written, monkeypatch):
    section, name = key.split(".")
    value, new = OLD_NAMES[key], current_name(key)
    file, text = written("a.json", json.dumps({section: {name: value}})), json.dumps(value)
    variable = f"WEBGYM_{section}__{name}".upper()
    plain = value if isinstance(value, str) else text
    for layer in ({"files": [file]}, {"run_config": file}, {"overrides": [f"{key}={text}"]}, {}):
        with monkeypatch.context() as patch, pytest.warns(RenamedSettingWarning, match=f"{key} is called {new} now"):
            if not layer:
                patch.setenv(variable, plain)
            assert flatten(load(**layer).model_dump(mode="json"))[new] == value


OLD_JOBS = {"key_points_model": "small", "blocking_base_url": "http://h/v1", "blocking_api_key_env_var": "GUARD"}
JOBS = {"key_points": {"model": "small"}, "blocking": {"base_url": "http://h/v1", "api_key_env_var": "GUARD"}}


def test_the_old_settings_of_the_judges_jobs_are_read_and_empty_ones_mean_the_judges_own(written, recwarn):
    old = written("config.json", json.dumps({"judge": {**OLD_JOBS, "blocking_model": "", "max_tokens": 1024}}))
    layers = ({"files": [old]}, {"run_config": old}, {"overrides": [f"judge.{k}={v}" for k, v in OLD_JOBS.items()]})
    for layer in layers:
        recwarn.clear()
        judge = load(**layer).judge
        assert judge.model_dump(mode="json")["jobs"] == JOBS
        assert (judge.for_job("blocking").model, judge.for_job("blocking").api_key_env_var) == (judge.model, "GUARD")
        assert len([note for note in recwarn if "max_tokens" not in str(note.message)]) == len(OLD_JOBS)
    assert parse_saved(json.loads(old.read_text())).judge.jobs == load([old]).judge.jobs
    assert parse_saved(json.loads(Settings().model_dump_json())) == Settings()


GONE = [key for key, removed in REMOVED.items() if type(removed.value) is object]


@each("key", GONE)
def test_a_setting_without_effect_is_ignored_with_a_note(key):
    with pytest.warns(RenamedSettingWarning, match=f"-s {key}: {key} has no effect: "):
        assert load(overrides=[f"{key}=separate"]) == load()
    assert key not in known_keys()


@pytest.mark.parametrize("key", [key for key in REMOVED if key not in GONE])
def test_a_constant_of_today_answers_with_one_note_and_another_value_is_refused_where_results_would_change(
    key, written, monkeypatch, recwarn
):
    removed, (section, name) = REMOVED[key], key.rsplit(".", 1)
    assert key not in known_keys()
    usual, other = json.dumps(removed.value), "7"
    for value, refused in ((usual, False), (other, removed.refused)):
        with monkeypatch.context() as patch:
            patch.setenv(f"WEBGYM_{key.replace('.', '__')}".upper(), value)
            for given in ((), (f"{key}={value}",)):
                if refused:
                    with pytest.raises(SettingsError, match=f"{re.escape(key)} is no setting any more: "):
                        load(overrides=given)
                else:
                    with pytest.warns(RenamedSettingWarning, match=f"{re.escape(key)} has no effect: "):
                        assert load(overrides=given) == load(overrides=["seed=0"])
            patch.delenv(f"WEBGYM_{key.replace('.', '__')}".upper())
            recwarn.clear()
            values = {name: json.loads(value)}
            for part in reversed(section.split(".")):
                values = {part: values}
            assert load(run_config=written("config.json", json.dumps(values))) == load()
            assert len(recwarn) == (value == other)


@pytest.mark.parametrize("text", ["[calculator]", '["calculator"]', "[ calculator ]"])
def test_a_list_needs_no_quotation_marks(text):
    settings = load(overrides=[f"agent.tools={text}", "log_config.run_name=[a"])
    assert (settings.agent.tools, settings.log_config.run_name) == (("calculator",), "[a")


UPDATE_ONLINE = """
defaults: [default, _self_]
save_path: ???
data_path: ???
num_nodes: 2
hydra: {run: {dir: .}, job: {chdir: false}}
vllm_server_url: http://localhost:8999
model_config: {model_type: qwen3-instruct, prompt_version: vanilla}
log_config: {run_name: webgym-, wandb_key_env_var: WANDB_API_KEY, entity_name: ""}
algorithm_config:
  positive_samples_to_train: 900
  learning_rate: 1e-6
  max_grad_norm: 1.0
  do_eval: false
  eval_strategy: epoch
  bf16: True
  num_nodes: 2
  warmup_ratio: 0.1
  gradient_checkpointing: False  # LLaMA-Factory does not read it
  deepspeed_config_filename: ds_config_b200_zero1.json
  report_to: wandb
"""


def test_a_file_of_webgyms_is_read_and_its_lines_without_effect_are_named(written):
    with pytest.warns(RenamedSettingWarning) as noted:
        settings = load([written("update_online.yaml", UPDATE_ONLINE)])
    algorithm = settings.algorithm_config
    assert (algorithm.positive_samples_to_train, algorithm.learning_rate, algorithm.do_eval) == (900, 1e-6, False)
    assert (algorithm.warmup_steps, algorithm.disable_gradient_checkpointing) == (0.1, False)
    assert (settings.train.nodes, settings.context_config.prompt_version) == (2, "vanilla")
    rows = [str(note.message).partition("update_online.yaml: ")[2].split()[0] for note in noted]
    assert sorted(rows) == [
        *(f"algorithm_config.{name}" for name in ("gradient_checkpointing=false", "num_nodes", "warmup_ratio")),
        *("data_path", "defaults", "hydra", "model_config.model_type", "model_config.prompt_version", "num_nodes"),
        *("save_path", "vllm_server_url"),
    ]


DISABLED = "algorithm_config.disable_gradient_checkpointing"


@pytest.mark.parametrize("text", ["false", "False", "no", "0"])
def test_webgyms_dead_switch_turns_nothing_off_but_in_the_settings_of_an_older_run_it_did(text, written, monkeypatch):
    key, name = f"{OPPOSITE}={text}", f"WEBGYM_{OPPOSITE.replace('.', '__').upper()}"
    with pytest.warns(RenamedSettingWarning, match="has no effect"):
        assert load(overrides=[key]) == load()
    with monkeypatch.context() as patch, pytest.warns(RenamedSettingWarning, match="has no effect"):
        patch.setenv(name, text)
        assert load().algorithm_config.disable_gradient_checkpointing is False
    old = {"algorithm_config": {"gradient_checkpointing": False}}
    assert parse_saved(old).algorithm_config.disable_gradient_checkpointing is True
    run = written("config.json", json.dumps(old))
    with pytest.warns(RenamedSettingWarning), pytest.raises(SettingsError, match=DISABLED):
        load(overrides=[f"{OPPOSITE}=maybe"])
    with pytest.warns(RenamedSettingWarning, match=f"is called {DISABLED} now"):
        assert load(run_config=run).algorithm_config.disable_gradient_checkpointing is True


@pytest.mark.parametrize("text", ["true", "True", "yes", "1"])
def test_the_old_switch_that_is_on_leaves_checkpointing_on(text, monkeypatch):
    monkeypatch.setenv(f"WEBGYM_{DISABLED.replace('.', '__').upper()}", "true")
    with pytest.warns(RenamedSettingWarning, match=f"is called {DISABLED} now"):
        assert load(overrides=[f"{OPPOSITE}={text}"]).algorithm_config.disable_gradient_checkpointing is False


@pytest.mark.parametrize("key", ["data.train_batch_size", "trainer.save_freq", "env_config.host_ip", "env_config.new"])
def test_a_setting_without_one_counterpart_gets_no_wrong_neighbour(key):
    with pytest.raises(SettingsError) as caught:
        load(overrides=[f"{key}=1"])
    assert "did you mean" not in str(caught.value) and "it is " not in str(caught.value)
    assert FOREIGN.get(key, FOREIGN[key.split(".")[0]]) in str(caught.value)


def test_foreign_names_are_no_settings_and_their_answers_name_settings_that_there_are():
    known = known_keys()
    sections = {key[: match.start()] for key in known for match in re.finditer(r"\.", key)}
    assert not known.keys() & FOREIGN.keys()
    for words in (*FOREIGN.values(), *MOVED.values()):
        for name in re.findall(r"\b[a-z_]+(?:\.[a-z_]+)+\b(?!\.md)", words):
            is_job = name.startswith("judge.jobs.")
            assert name in known or name in sections or is_job or name.endswith((".md", ".jsonl")), words


def test_a_section_under_its_old_name_may_be_empty_json_or_beside_the_new_one_which_wins(written, monkeypatch):
    file = written("a.yaml", "roles: {device: cuda, serve: /a}\nvenvs: {device: cpu}")
    with pytest.warns(RenamedSettingWarning):
        settings = load([file])
    assert (settings.venvs.device, settings.venvs.serve) == ("cpu", "/a")
    load([written("a.yaml", "roles:\n")])
    monkeypatch.setenv("WEBGYM_ROLES", '{"device": "cpu"}')
    with pytest.warns(RenamedSettingWarning):
        assert load().venvs.device == "cpu"


def test_an_unknown_key_of_a_renamed_section_gets_the_nearest_name():
    with pytest.warns(RenamedSettingWarning), pytest.raises(SettingsError, match=r"did you mean 'venvs.device'"):
        load(overrides=["roles.devise=cpu"])


def test_a_run_keeps_its_settings_whatever_they_are_called_and_those_that_are_gone_are_no_obstacle():
    device, train = {"device": "cpu"}, {"extra": {"a": {"b": 1}}}
    kept = Settings.model_validate({"venvs": device, "train": train})
    assert parse_saved({"roles": device, "train": train}) == kept
    assert parse_saved({"train": {"node_storage": "separate"}, "serve": {"sleep_level": 1}}) == Settings()


def test_the_note_comes_once_and_on_stderr(tmp_path):
    done = webgym("config", "show", "--json", "-s", "roles.device=cpu", cwd=tmp_path)
    assert done.stderr == "note: -s roles.device: roles.device is called venvs.device now (the old name still works)\n"
    assert '"venvs.device", "value": "cpu"' in done.stdout


def test_a_variable_is_for_new_runs(written, monkeypatch):
    run = written("config.json", json.dumps({"policy_config": {"base_model": "org/mine"}, "rollout": {"episodes": 1}}))
    monkeypatch.setenv("WEBGYM_POLICY_CONFIG__BASE_MODEL", "org/other")
    monkeypatch.setenv("WEBGYM_SEED", "3")
    monkeypatch.setenv("WEBGYM_ROLLOUT__EPISODES", "4")
    settings, sources = load_with_sources(run_config=run)
    assert (settings.policy_config.base_model, settings.rollout.episodes, load().seed) == ("org/mine", 4, 3)
    assert sources["policy_config.base_model"] == f"run {run}"
    (line, other) = sorted(list_unused_variables(run))
    assert "WEBGYM_POLICY_CONFIG__BASE_MODEL=org/other" in line
    assert "policy_config.base_model=org/mine" in line
    assert "WEBGYM_SEED=3" in other
    assert load(overrides=["seed=5"], run_config=run).seed == 5


def test_the_path_of_a_model_means_the_same_from_every_folder(tmp_path, monkeypatch):
    (tmp_path / "models/tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    given = load(overrides=["policy_config.base_model=models/tiny"])
    assert given.policy_config.base_model == str(tmp_path / "models/tiny")
    assert load(overrides=["policy_config.base_model=org/name"]).policy_config.base_model == "org/name"
    (tmp_path / "link").symlink_to("models")
    linked = load(overrides=["policy_config.base_model=link/tiny"])
    policy = given.policy_config.model_copy(update={"base_model": "models/tiny"})
    older = given.model_copy(update={"policy_config": policy})
    assert changed_frozen_keys(given, linked) == changed_frozen_keys(older, given) == []
    monkeypatch.chdir("/")
    assert changed_frozen_keys(older, given) == []


def test_what_followed_from_the_model_before_follows_from_the_next(written):
    saved = load(overrides=["policy_config.base_model=Qwen/Qwen3-VL-8B-Thinking"])
    run = written("config.json", json.dumps(saved.model_dump(mode="json")))
    settings = load(overrides=["policy_config.base_model=Qwen/Qwen3-VL-8B-Instruct"], run_config=run)
    assert settings == load(overrides=["policy_config.base_model=Qwen/Qwen3-VL-8B-Instruct"])


@pytest.mark.parametrize(
    ("key", "value", "here"),
    [
        ("rl.ref.path", "model", "model"),
        ("rl.ref.path", "file", None),  # a hub id is no folder
        ("rl.critic.path", "./model", "model"),
        ("rl.critic.path", "org/name", None),
        ("rl.replay.experience", ["model", "gone"], "model"),
        ("browser.executable", "./file", "file"),
        ("browser.executable", "file", None),  # a program in PATH
        ("browser.executable", "", None),
    ],
)
def test_what_another_process_reads_has_no_path_from_this_folder(tmp_path, monkeypatch, key, value, here):
    (tmp_path / "model").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    read = flat_values(load(overrides=[f"{key}={json.dumps(value)}"]))[key]
    first = str(tmp_path / here) if here else value
    assert read == ([first, "gone"] if isinstance(value, list) else first)


def test_paths_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("tasks.jsonl", "admin.json"):
        (tmp_path / name).write_text("{}")
    for name in ("model", "logins", "files", "env"):
        (tmp_path / name).mkdir()
    site = 'sites.desk={"url": "http://127.0.0.1:1", "accounts": {"admin": {"storage_state": "admin.json"}}}'
    given = ("policy_config.base_model=model", "tasks.train=tasks.jsonl", "tasks.test=sites:all", "venvs.train=env")
    settings = load([], [*given, "browser.auth_folder=logins", 'rollout.file_folders=["files", "none"]', site])
    assert settings.policy_config.base_model == str(tmp_path / "model")
    assert (settings.tasks.train, settings.tasks.test) == (str(tmp_path / "tasks.jsonl"), "sites:all")
    assert (settings.browser.auth_folder, settings.venvs.train) == (str(tmp_path / "logins"), str(tmp_path / "env"))
    assert settings.rollout.file_folders == (str(tmp_path / "files"), "none")
    assert settings.sites["desk"].accounts["admin"].storage_state == str(tmp_path / "admin.json")
    monkeypatch.setenv("HOME", str(tmp_path))
    for start in ("", "~/"):  # no shell expands a ~ after `=`
        settings = load([], [f"policy_config.base_model={start}model", f'rollout.file_folders=["{start}files"]'])
        assert settings.policy_config.base_model == str(tmp_path / "model")
        assert settings.rollout.file_folders == (str(tmp_path / "files"),)


def test_scalars_of_a_file_are_read_as_they_are_written(written):
    account = "accounts: {on: {account: off1, password_env_var: P}}"
    file = f"loop: {{val_before_train: no}}\nsites: {{no: {{url: 'http://a', {account}}}}}\n"
    settings = load([written("a.yaml", f"{file}train: {{extra: {{strategy: 'no', bf16: no}}}}")])
    assert settings.loop.val_before_train is False and [*settings.sites["no"].accounts] == ["on"]
    assert settings.train.extra == {"strategy": "no", "bf16": False}
    extra = "adam_epsilon: 1e-6, note: '1e-6', name: e5, day: 2024-01-02, time: 1:30"
    settings = load([written("a.yaml", f"train: {{extra: {{{extra}}}}}\nloop: {{iterations: 1e1}}")])
    texts = {"note": "1e-6", "name": "e5", "day": "2024-01-02", "time": "1:30"}
    assert (settings.train.extra, settings.loop.iterations) == ({"adam_epsilon": 1e-6, **texts}, 10)
