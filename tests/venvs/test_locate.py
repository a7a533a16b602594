"""Where the environments are found, and when a new one is wanted."""

import pytest

from webgym_cli.config.load import load
from webgym_cli.config.secrets import add_settings_secrets
from webgym_cli.config.shipped import requirements_files, shipped_root
from webgym_cli.errors import VenvError
from webgym_cli.train.plan import child_environment
from webgym_cli.venvs import cpu_fixes, locate
from webgym_cli.venvs.locate import (
    ROLES,
    interpreter,
    resolve_device,
    role_environment,
    role_home,
    role_python,
    venv_environ,
)


def make_environment(path):
    python = interpreter(path)
    python.parent.mkdir(parents=True)
    python.write_text("")
    return python


def settings(**roles):
    return load((), [f"venvs.{key}={value}" for key, value in {"device": "cpu", **roles}.items()])


def test_home_is_the_users_data_folder_unless_named(home, monkeypatch):
    assert role_home() == home
    monkeypatch.delenv("WEBGYM_HOME")
    assert role_home().name == "webgym"


@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_and_an_interpreter_both_work_and_links_are_not_followed(tmp_path, linked):
    python = interpreter(tmp_path / "own")
    if linked:
        python.parent.mkdir(parents=True)
        python.symlink_to(make_environment(tmp_path / "system"))
    else:
        make_environment(tmp_path / "own")
    assert role_python(settings(train=str(tmp_path / "own")), "train") == python
    assert role_python(settings(train=str(python)), "train") == python


@pytest.mark.parametrize("role", ROLES)
def test_a_missing_environment_names_the_command(role, tmp_path):
    for chosen in (settings(), settings(**{role: str(tmp_path / "nowhere")})):
        with pytest.raises(VenvError) as caught:
            role_python(chosen, role)
        assert (caught.value.hint, caught.value.exit_code) == (f"webgym setup --role {role}", 2)


def test_only_a_marked_environment_is_complete():
    environment = role_environment("train", "cpu")
    make_environment(environment.path)
    assert not environment.complete
    with pytest.raises(VenvError):
        role_python(settings(), "train")
    environment.marker.write_text("{}")
    assert role_python(settings(), "train") == environment.python


def test_the_path_says_role_flavour_and_contents(home):
    path = role_environment("serve", "cuda").path
    assert path.parent == home / "envs"
    role, device, digest = path.name.split("-")
    assert (role, device, len(digest)) == ("serve", "cuda", 12)


def test_changed_requirements_or_fixes_make_a_new_environment(tmp_path, monkeypatch):
    before = role_environment("train", "cpu").path
    assert role_environment("train", "cpu").path == before
    other = tmp_path / "other.txt"
    other.write_text(requirements_files("train", "cpu")[0].read_text() + "extra==1\n")
    with monkeypatch.context() as patch:
        patch.setattr(locate, "requirements_files", lambda role, device: [other])
        assert role_environment("train", "cpu").path != before
    cuda = role_environment("train", "cuda").path
    monkeypatch.setattr(cpu_fixes, "HOOK", other)
    assert role_environment("train", "cpu").path != before
    assert role_environment("train", "cuda").path == cuda


def test_the_flavour_follows_the_driver_only_when_left_open(monkeypatch):
    monkeypatch.setattr(locate, "driver_answers", lambda: True)
    assert [resolve_device(value) for value in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]
    monkeypatch.setattr(locate, "driver_answers", lambda: False)
    assert [resolve_device(value) for value in ("auto", "cpu", "cuda")] == ["cpu", "cpu", "cuda"]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_requirement_is_pinned_and_every_pin_has_a_hash(role, device):
    pins = read_pins(shipped_root() / "roles" / f"{role}-{device}.txt")
    assert pins
    assert all(pin.count("==") == 1 and " " not in pin for pin in pins)
    locked = read_pins(shipped_root() / "roles" / f"{role}-{device}.lock")
    assert all("--hash=sha256:" in pin for pin in locked)
    assert set(pins) <= {pin.split(" ")[0] for pin in locked}


def read_pins(path):
    text = path.read_text().replace("\\\n", "")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_servers_and_trainers_get_none_of_the_keys_that_settings_name(tmp_path, monkeypatch):
    chosen = load((), ["judge.api_key_env_var=F_JUDGE", "rollout.endpoint.api_key_env_var=HF_TOKEN"])
    keys = {"F_JUDGE": "judge-81TzKq", "HF_TOKEN": "hf_81TzKqWe", "WANDB_API_KEY": "wandb-81TzKq", "FOREIGN": "other"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    add_settings_secrets(chosen)
    server, trainer = venv_environ(tmp_path), child_environment({}, chosen, tmp_path)
    assert {name for name in keys if name in server} == {"HF_TOKEN", "FOREIGN"}
    assert {name for name in keys if name in trainer} == {"HF_TOKEN", "FOREIGN", "WANDB_API_KEY"}


def test_servers_and_trainers_are_alone_where_torchrun_or_a_cluster_started_webgym(tmp_path, monkeypatch):
    outer = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "FORCE_TORCHRUN", "PET_NNODES", "TORCHELASTIC_RUN_ID"]
    kept = {"NCCL_DEBUG": "INFO", "SLURM_JOB_ID": "7", "WORLD_SIZES": "3"}
    for name, value in {**dict.fromkeys([*outer, "ACCELERATE_USE_FSDP", "PMI_SIZE"], "2"), **kept}.items():
        monkeypatch.setenv(name, value)
    trainer = child_environment({"PET_NODE_RANK": "0"}, load(), tmp_path)
    assert {name: trainer[name] for name in (*outer, *kept, "PMI_SIZE") if name in trainer} == kept
    assert trainer["PET_NODE_RANK"] == "0"  # webgym's own rendezvous
