"""Whether anything goes to Weights & Biases."""

import pytest

from webgym_cli.config.load import load
from webgym_cli.venvs.wandb_mode import key_source, wandb_environment, wandb_mode, with_key


@pytest.fixture(autouse=True)
def empty_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("setting", "environ", "mode"),
    [
        ("auto", {}, "offline"),
        ("auto", {"WANDB_API_KEY": "k"}, "online"),
        ("auto", {"WANDB_API_KEY": "k", "WANDB_MODE": "offline"}, "offline"),
        ("auto", {"WANDB_API_KEY": "k", "WANDB_MODE": "dryrun"}, "offline"),
        ("auto", {"WANDB_MODE": "disabled"}, "disabled"),
        ("auto", {"WANDB_MODE": "online"}, "online"),
        ("online", {}, "online"),
        ("online", {"WANDB_MODE": "offline"}, "offline"),
        ("offline", {"WANDB_API_KEY": "k", "WANDB_MODE": "online"}, "offline"),
        ("disabled", {"WANDB_API_KEY": "k", "WANDB_MODE": "online"}, "disabled"),
    ],
)
def test_the_stricter_word_counts_else_the_key(setting, environ, mode):
    assert wandb_mode(load(overrides=[f"log_config.tracking={setting}"]), environ)[0] == mode


def test_the_reason_names_what_decided():
    assert wandb_mode(load(), {})[1] == "WANDB_API_KEY is not set"
    assert wandb_mode(load(), {"WANDB_MODE": "offline"})[1] == "WANDB_MODE=offline"
    assert wandb_mode(load(overrides=["log_config.tracking=disabled"]), {})[1] == "log_config.tracking=disabled"


def test_a_key_has_several_places(tmp_path, monkeypatch):
    settings = load(overrides=["log_config.wandb_key_env_var=MINE"])
    assert key_source(settings, {"MINE": "k"}) == "MINE"
    assert with_key({"WANDB_API_KEY": "other"}, settings)["WANDB_API_KEY"] == "other"
    monkeypatch.setenv("MINE", "k")
    assert with_key({"WANDB_API_KEY": "other"}, settings)["WANDB_API_KEY"] == "k"
    file = tmp_path / ".netrc"
    file.write_text("machine wandb.company.test login user password secret\n")
    file.chmod(0o600)
    assert key_source(settings, {}) == ""
    assert key_source(settings, {"WANDB_BASE_URL": "https://wandb.company.test"}) == str(file)
    file.write_text("machine (")
    assert key_source(settings, {}) == ""


def test_the_start_is_bounded_unless_somebody_bounds_it():
    assert wandb_environment("online", {}) == {"WANDB_MODE": "online", "WANDB_INIT_TIMEOUT": "300"}
    assert "WANDB_INIT_TIMEOUT" not in wandb_environment("online", {"WANDB_INIT_TIMEOUT": "5"})
    assert wandb_environment("offline", {})["WANDB_ERROR_REPORTING"] == "false"


def test_a_user_without_a_home_has_no_netrc(monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])  # a container's user that no file names
    assert key_source(load(), {}) == ""
