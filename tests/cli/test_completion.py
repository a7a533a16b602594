"""What the shell offers."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import webgym
from webgym_cli.cli import completion as complete
from webgym_cli.config.load import known_keys, load
from webgym_cli.store.run import RunDir, create_or_open

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
SHOW = "\x01printf '<%s>' \r"
"""Keys that have the line printed, a word each, in place of running it."""
KEYS = f"webgym comp\tgam\t runs/a\t{SHOW}webgym roll\tgam\t -s venvs.dev\tcp\t{SHOW}exit\r"
COMPLETED = ("<webgym><compare><gamma/><runs/alpha/>", "<webgym><rollout><gamma/><-s><venvs.device=cpu>")
SILENCE = 30
"""Seconds without a word after which an interactive bash is given up."""
needs_bash = pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with three runs, two of them in `runs`, and a home of its own."""
    for name in ("runs/alpha", "runs/beta", "gamma"):
        create_or_open(RunDir(tmp_path / name), load())
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", PATH)
    return tmp_path


def complete_in_shell(shell, *words):
    """Ask as a shell's script does."""
    environment = {"_WEBGYM_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    environment |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    environment["_TYPER_COMPLETE_ARGS"] = " ".join(words)
    result = webgym(cwd=Path.cwd(), **environment)
    return [line for line in result.stdout.splitlines() if line]


NEEDED = ('tasks.difficulty_ratio={"easy": 1}', "rl.actor.loss_scale_factor=1", "agent.greedy_chain=true")
"""What values of other settings want to have beside them."""


def test_settings_are_offered_and_their_values_and_files(place):
    assert {"demo", "webgym"} <= set(complete.settings_files())
    assert complete.settings("") == [f"{key}=" for key in known_keys()]
    offered = [f"venvs.device={value}" for value in ("", "auto", "cpu", "cuda")]
    assert complete.settings("venvs.dev") == complete.settings("venvs.device=c") == offered
    assert complete.settings("tasks.no_rep") == ["tasks.no_repeats=", "tasks.no_repeats=true", "tasks.no_repeats=false"]
    assert complete.settings("seed=") == ["seed=", "seed=0"]
    assert complete.settings("nosuch") == []
    for key in known_keys():
        beside = [f"{key.removesuffix('isolation')}reset=./reset"] if key.endswith(".isolation") else []
        for offer in complete.settings(f"{key}="):
            if value := offer.partition("=")[2]:
                load(overrides=[*NEEDED, *beside, f"{key}={value}"])


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["webgym", "compa"], ["compare"]),
        (["webgym", "rollout", "-c", "gsm"], ["gsm8k"]),
        (["webgym", "import", "web"], ["webgym", "webrl", "webrl-data", "webvoyager"]),
        (["webgym", "export-sharegpt", "gamma", "--format", "h"], ["hf"]),
        (["webgym", "rollout", "gamma", "--split", "te"], ["test"]),
        (["webgym", "rollout", "gamma", "--policy", "o"], ["oracle"]),
        (["webgym", "tasks", "sample", "si"], ["sites:all"]),
        (["webgym", "tasks", "sample", "weba"], ["webarena:fixture"]),
        (["webgym", "rollout", "-s", "venvs.device=cu"], ["venvs.device=cuda"]),
    ],
    ids=lambda part: " ".join(part),
)
@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_each_shell_is_answered(place, shell, words, offered):
    result = complete_in_shell(shell, *words)
    if shell == "zsh":
        matches = re.findall(r'"([^"]+)"(?::"[^"]*")?', "\n".join(result))
        result = [name.replace("\\\\:", ":") for name in matches]
    assert [line.partition("\t")[0] for line in result] == offered


def typed(keys, *shell):
    """Type into an interactive shell, and return what its terminal showed."""
    child, terminal = pty.fork()
    if not child:
        os.execvp(shell[0], shell)
    os.write(terminal, keys.encode())
    seen = b""
    try:
        while select.select([terminal], [], [], SILENCE)[0] and (part := os.read(terminal, 65536)):
            seen += part
    except OSError:  # a terminal whose other side is closed
        pass
    os.close(terminal)  # a bash that still waits gets its hangup
    os.waitpid(child, 0)
    return seen.decode()


@needs_bash
def test_an_installed_completion_works_in_an_interactive_bash(place):
    command = ["bash", "-c", "webgym --install-completion; exit $?"]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (installed.returncode, "completion installed" in installed.stdout) == (0, True), installed.stderr
    assert "source" in (place / "home" / ".bashrc").read_text()
    shown = typed(KEYS.replace("cp\t", "cpu"), "bash", "--noprofile", "-i")  # bash splits words at `=`
    assert all(line in shown for line in COMPLETED)


@pytest.mark.skipif(not shutil.which("zsh"), reason="there is no zsh")
def test_it_works_in_an_interactive_zsh(place):
    begin = "autoload -Uz compinit; compinit -u; source <(_WEBGYM_COMPLETE=source_zsh webgym)\r"
    shown = typed(f"{begin}{KEYS}", "zsh", "-f", "-i")
    assert all(line in shown for line in COMPLETED)


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish")
def test_it_works_in_fish(place):
    typed_words = ("comp", "rollout gamma -s venvs.device=", "rollout x --split ")
    lines = [f'complete -C "webgym {words}"' for words in typed_words]
    script = "\n".join(["source (_WEBGYM_COMPLETE=source_fish webgym | psub)", *lines])
    result = subprocess.run(["fish", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    offered = [line.partition("\t")[0] for line in result.stdout.splitlines()]
    values = [f"venvs.device={value}" for value in ("", "auto", "cpu", "cuda")]
    assert offered == ["compare", *values, "test", "train"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_can_be_had_by_name(place, shell):
    result = webgym(cwd=place, _WEBGYM_COMPLETE=f"source_{shell}")
    assert f"_WEBGYM_COMPLETE=complete_{shell}" in result.stdout
