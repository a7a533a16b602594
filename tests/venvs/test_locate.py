"""Where the environments are found, and when a new one is wanted."""

from __future__ import annotations

import pytest

from webgym_cli.config.load import load
from webgym_cli.config.shipped import requirements_file
from webgym_cli.errors import VenvError
from webgym_cli.venvs import cpu_fixes, locate
from webgym_cli.venvs.locate import ROLES, interpreter, resolve_device, role_environment, role_home, role_python


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WEBGYM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


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


def test_a_folder_and_an_interpreter_both_work(tmp_path):
    python = make_environment(tmp_path / "own")
    assert role_python(settings(train=str(tmp_path / "own")), "train") == python
    assert role_python(settings(train=str(python)), "train") == python


def test_a_linked_interpreter_is_not_followed_out_of_its_environment(tmp_path):
    real = make_environment(tmp_path / "system")
    link = interpreter(tmp_path / "own")
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    assert role_python(settings(serve=str(tmp_path / "own")), "serve") == link


@pytest.mark.parametrize("role", ROLES)
def test_a_missing_environment_names_the_command(role, tmp_path):
    for chosen in (settings(), settings(**{role: str(tmp_path / "nowhere")})):
        with pytest.raises(VenvError) as caught:
            role_python(chosen, role)
        assert caught.value.hint == f"webgym setup --role {role}"
        assert caught.value.exit_code == 2


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
    other.write_text(requirements_file("train", "cpu").read_text() + "extra==1\n")
    with monkeypatch.context() as patch:
        patch.setattr(locate, "requirements_file", lambda role, device: other)
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


def test_every_requirement_is_pinned():
    for role in ROLES:
        for device in ("cpu", "cuda"):
            lines = requirements_file(role, device).read_text().splitlines()
            wanted = [line for line in lines if line and not line.startswith("#")]
            assert wanted
            assert all(len(line.split("==")) == 2 and " " not in line for line in wanted), (role, device)
