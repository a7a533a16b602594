"""Episodes of webarena-verified's tasks on a small site under its address, scored by the real package."""

import json
import subprocess

import pytest
from aiohttp import web

from benchmarks.peers import VERIFIED
from tests.environments.visits import HASTY
from tests.peers import require
from tests.prepare.exported import exported
from tests.records.builders import new_run, step, trajectory
from webgym_cli.config.load import load
from webgym_cli.environments.registry import find_environment
from webgym_cli.environments.webarena.tasks import convert_webarena
from webgym_cli.errors import UsageError
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import Outcome
from webgym_cli.records.webarena import WebArenaSite
from webgym_cli.rewards.engine import execute_scoring
from webgym_cli.rewards.official_scorer import OfficialScorer
from webgym_cli.rewards.selection import ScoringQuery, plan_scoring
from webgym_cli.store.buffer import append, scan
from webgym_cli.util.local_server import LocalServer

pytestmark = [pytest.mark.stack, pytest.mark.browser, pytest.mark.usefixtures("chromium")]

FORK = """<script>
function fork(name) {
  const body = JSON.stringify({id: "79", name, namespace_id: 2505, path: name});
  fetch("/api/v4/projects/79/fork", {method: "POST", headers: {"Content-Type": "application/json"}, body})
    .then(() => document.title = "Forked");
}
</script>"""
BUTTONS = "".join(f"<button onclick=\"fork('{name}')\">Fork {name}</button>" for name in ("2019-nCov", "other"))
LINKS = '<a href="/dashboard/todos">Todos</a> <a href="/dashboard/issues">Issues</a>'
PAGE = f"<html><head><title>Site</title>{FORK}</head><body>{LINKS}{BUTTONS}</body></html>"
BAND = "Quest Lumaflex™ Band"


def tell(kind, values=None):
    return json.dumps({"task_type": kind, "status": "SUCCESS", "retrieved_data": values})


# Task, name of what is clicked, answer, verdict: of each kind of answer and of requests.
EPISODES = [
    (0, None, tell("RETRIEVE", [BAND]), "success"),
    (0, None, tell("RETRIEVE", ["Sprite Ball"]), "failure"),
    (0, None, BAND, "failure"),
    (44, "Todos", tell("NAVIGATE"), "success"),
    (44, "Issues", tell("NAVIGATE"), "failure"),
    (44, "Todos", tell("RETRIEVE"), "failure"),
    (394, "Fork 2019-nCov", tell("MUTATE"), "success"),
    (394, "Fork other", tell("MUTATE"), "failure"),
    (394, None, tell("MUTATE"), "failure"),
]


def run_scorer(*arguments):
    require(VERIFIED)
    program = str(VERIFIED.python.with_name("webarena-verified"))
    subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, timeout=300)


@pytest.fixture(scope="module")
async def site():
    async def serve(request):
        if request.method == "POST":
            return web.json_response({}, status=201)
        return web.Response(text=PAGE, content_type="text/html")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    async with LocalServer(app, 0) as server:
        yield f"http://{server.address}"


@pytest.fixture(scope="module")
def tasks(site, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    run_scorer("dataset-get", "--task-ids", "0,44,394", "--output", folder / "theirs.json")
    addresses = {known: f"{site}/admin" if known == "shopping_admin" else site for known in WebArenaSite}
    logged_out = {"require_login": False, "storage_state": None}  # the site has no accounts
    return {
        int(task.id): task.model_copy(update={"extra": task.extra | logged_out})
        for task in convert_webarena(folder / "theirs.json", addresses).tasks
    }


async def play(pool, run, number, task, name, answer):
    """Run and store one episode: a click on what has the name, and the answer."""
    environment = pool.new()
    environment.episode = f"train-0000-{number:05d}"
    environment.har = run.har / f"{environment.episode}.har"
    try:
        _, view = await environment.reset(task, number)
        if name is not None:
            (element,) = (one.id for one in view.elements if one.name == name)
            await environment.step(Action(name=ActionName.CLICK, element_id=element))
        assert await environment.answer(answer) is None
    finally:
        await environment.close()
    outcome = Outcome(stop=Stop.ANSWERED, answer=answer)
    acted = step(0, observation=step(0).observation.model_copy(update={"screenshot": None}))
    append(run, trajectory(number, task=task, outcome=outcome, steps=(acted,)))


async def test_the_real_scorer_tells_right_episodes_from_wrong_ones(site, tasks, tmp_path):
    run, out = new_run(tmp_path / "run"), tmp_path / "out"
    given = [*HASTY, "context_config.prompt_version=webrl", "browser.screenshots=false"]
    given += [f"sites.{known}.url={site}" for known in ("shopping_admin", "gitlab")]
    async with find_environment("webarena").make_pool(load(overrides=given)) as pool:
        for number, (task, name, answer, _) in enumerate(EPISODES):
            await play(pool, run, number, tasks[task], name, answer)
    entries = json.loads((run.har / "train-0000-00003.har").read_text())["log"]["entries"]
    assert {(one["request"]["method"], one["request"]["url"].removeprefix(site)) for one in entries} >= {
        ("GET", "/"),
        ("GET", "/dashboard/todos"),
    }
    assert not list(run.har.glob(".*"))
    exported(run, out, format="webarena-verified")
    for folder in sorted(out.glob("[0-9]*")):
        run_scorer("eval-tasks", "--output-dir", folder)
    plan = plan_scoring(run, OfficialScorer(load(), out), ScoringQuery())
    await execute_scoring(plan, run, plan.scorer, lambda event: None)
    scores = [one.outcome.scores for one in scan(run, Split.TRAIN, 0)]
    rewards = {"success": 1.0, "failure": 0.0}
    assert [(one.value, one.detail) for (one,) in scores] == [
        (rewards[verdict], f"webarena-verified {VERIFIED.version}") for *_, verdict in EPISODES
    ]
    (run.har / "train-0000-00000.har").unlink()
    with pytest.raises(UsageError, match="record"):
        exported(run, tmp_path / "again", format="webarena-verified")
