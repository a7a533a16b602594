"""Many episodes on real applications; the rollout is killed in the middle and resumed.

python -m tests.environments.apps.killed --episodes 200
"""

import argparse
import json
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from benchmarks.marks_apps import serve
from benchmarks.marks_states import APPS
from tests.environments.apps.install import apps_folder
from tests.executable import Command, finished, stored, trajectories, webgym
from tests.json_server import completion, serve_json
from webgym_cli.agent.forms.tools import render_web_action
from webgym_cli.agent.forms.web_actions import FULL
from webgym_cli.records.action import Action, ActionName, InteractionMode

CONCURRENCY = 16
_MODE = InteractionMode.SET_OF_MARKS
_ELEMENT = re.compile(r'^\[(\d+)\] (\S+) "((?:[^"\\]|\\.)*)"', re.MULTILINE)
_WAIT = render_web_action(Action(name=ActionName.WAIT, seconds=0.5), _MODE, FULL)
# An application's start page, and what is done there: type into a field, click a button. `{}` is the episode's name.
_PLAYS = {
    "sqlite-web": (
        "/people/insert/",
        [
            ["textbox", "name", "{}"],
            ["textbox", "city", "Bergen"],
            ["textbox", "age", "33"],
            ["button", "Insert", None],
        ],
    ),
    "django-admin": ("/admin/auth/group/add/", [["textbox", "Name", "{}"], ["button", "Save", None]]),
    "jupyterlab": (
        "/lab/tree/{}.ipynb?reset",
        [["textbox", "", "open('{}.made', 'a').write('x')"], ["button", "Run this cell", None]],
    ),
}
_NOTEBOOKS = 16
"""Every so manieth episode is one of the notebook IDE, whose page takes as long as some twenty of the others."""


def copy_apps(path: Path) -> Path:
    """Copy what the applications serve and change beside links to what was installed. Returns the copy."""
    installed = apps_folder()
    for name in ("venv", "node_modules"):
        (path / name).symlink_to(installed / name)
    for file in installed.iterdir():
        if file.is_file():
            shutil.copy(file, path)
    return path


def _decide(messages: list[dict]) -> str:
    """Return the next call of a play that stands in the task: what was already done, the replies tell."""
    texts = [
        message["content"]
        if isinstance(message["content"], str)
        else "".join(part.get("text", "") for part in message["content"])
        for message in messages
    ]
    seen = next(text for text in texts if "Task: " in text)
    steps = json.loads(seen.partition("Task: ")[2].partition("\n")[0])
    done = sum(message["role"] == "assistant" and text != _WAIT for message, text in zip(messages, texts, strict=True))
    if done == len(steps):
        return render_web_action(Action(name=ActionName.ANSWER, text="done"), _MODE, FULL)
    role, name, text = steps[done]
    for number, shown, called in _ELEMENT.findall(texts[-1]):
        if shown == role and called.startswith(name):
            given = {"element_id": int(number)} | ({} if text is None else {"text": text})
            kind = ActionName.CLICK if text is None else ActionName.TYPE
            return render_web_action(Action(name=kind, **given), _MODE, FULL)
    return _WAIT


def _answer(request: object, body: bytes) -> tuple[int, dict]:
    """Answer as the scripted policy, which has no list of models."""
    if not body:
        return 404, {}
    return 200, completion(_decide(json.loads(body)["messages"]))


def _write_tasks(folder: Path, episodes: int, addresses: dict[str, str]) -> dict[str, str]:
    """Write a task an episode, each with an effect of its own. Returns the application of each, by its name."""
    apps, lines = {}, []
    for number in range(episodes):
        name = f"episode-{number:03d}"
        at = number % _NOTEBOOKS
        apps[name] = "jupyterlab" if at == 0 else ("sqlite-web", "django-admin")[at % 2]
        path, steps = _PLAYS[apps[name]]
        if apps[name] == "jupyterlab":
            shutil.copy(folder / "note.ipynb", folder / f"{name}.ipynb")
        play = [[role, called, text and text.replace("{}", name)] for role, called, text in steps]
        address = addresses[apps[name]] + path.replace("{}", name)
        lines.append(json.dumps({"id": name, "instruction": json.dumps(play), "start_url": address}))
    (folder / "tasks.jsonl").write_text("\n".join(lines))
    return apps


def read_effects(folder: Path) -> Counter[str]:
    """Return how often each episode's effect is there, on the servers' side."""
    counts: Counter[str] = Counter()
    for base, query in (
        ("data.db", "select name from people where city = 'Bergen' and age = 33"),
        ("admin.py.db", "select name from auth_group"),
    ):
        with sqlite3.connect(folder / base) as database:
            counts.update(name for (name,) in database.execute(query))
    counts.update({file.stem: len(file.read_text()) for file in folder.glob("*.made")})
    return counts


def roll_and_kill(folder: Path, episodes: int) -> dict[str, float]:
    """Run so many episodes, kill the rollout once a third is stored, resume it, and check what is there.

    Returns what is worth telling. Raises `AssertionError` for an episode lost or stored twice, a process that is left,
    or an effect that is missing.
    """
    run = folder / "run"
    with ExitStack() as stack:
        addresses = {app.name: stack.enter_context(serve(app, folder)) for app in APPS if app.name in _PLAYS}
        apps = _write_tasks(folder, episodes, addresses)
        settings = (
            f"tasks.train={folder / 'tasks.jsonl'}",
            "browser.private_hosts=[127.0.0.1]",
            "context_config.prompt_version=full_vanilla",
            f"context_config.interaction_mode={_MODE}",
            "context_config.history_window=30",
            "context_config.max_images=1",
            *(f"rollout.train_max_steps.{band}=30" for band in ("easy", "medium", "hard")),
            f"rollout.concurrency={CONCURRENCY}",
            # a busy machine is slow, not broken
            *("browser.action_timeout=60", "browser.navigation_timeout=90", "rollout.max_attempts=6"),
        )
        policy = stack.enter_context(serve_json(_answer)) + "/v1"
        overrides = [part for setting in settings for part in ("-s", setting)]
        began = time.monotonic()
        command = Command(
            folder, "rollout", run, *overrides, "--policy", policy, "--episodes", episodes, "--split", "train"
        )
        command.until(lambda: len(finished(run)) >= episodes // 3)
        assert command.send(signal.SIGKILL) == -signal.SIGKILL
        kept = stored(run)
        webgym(folder, "resume", run)
        seconds = time.monotonic() - began
    assert stored(run).startswith(kept)
    ids = [trajectory["id"] for trajectory in trajectories(run)]
    assert len(set(ids)) == len(ids)
    done = Counter(finished(run))
    failed = [(trajectory["episode"], trajectory["outcome"]["failure_detail"]) for trajectory in trajectories(run)]
    assert len(done) == episodes, [one for one in failed if one[0] not in done]
    assert set(done.values()) == {1}
    effects = read_effects(folder)
    assert set(effects) >= set(apps), f"effects are missing: {sorted(set(apps) - set(effects))}"
    # what an episode that was cut off had done already, its second attempt does once more
    again = {name for name in apps if effects[name] > 1}
    assert len(again) <= CONCURRENCY and all(effects[name] == 2 for name in again)
    steps = sum(len(trajectory["steps"]) for trajectory in trajectories(run))
    return {
        "episodes": episodes,
        "stored before the kill": kept.count(b"\n"),
        "steps": steps,
        "seconds": round(seconds, 1),
        "effects": len(apps),
        "effects of cut episodes done twice": len(again),
    }


def main() -> int:
    """Run it in a temporary folder and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="webgym-apps-") as folder:
        sys.stdout.write(json.dumps(roll_and_kill(copy_apps(Path(folder)), args.episodes)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
