"""`webgym rollout` on a site of WebArena's that has a login and is reset: the fixture mail site, in a real browser."""

import asyncio
import json

import pytest

from tests.environments.webarena.webarena_mail import PASSWORD, mail_settings
from tests.forked import webgym

SITE = "gitlab"


@pytest.fixture
def rollout(tmp_path, mail, policy):
    """Run `webgym rollout` on two tasks that only who is logged in can solve."""
    record = {
        "environment": "webarena",
        "start_url": f"{mail.url}/folder/inbox",
        "sites": [SITE],
        "storage_state": f"./.auth/{SITE}_state.json",
        "eval": {"eval_types": ["url_match"], "reference_url": f"{mail.url}/folder/inbox"},
    }
    lines = [json.dumps({**record, "id": f"t{at}", "instruction": f"Open {at}."}) for at in range(2)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines) + "\n")

    async def call(*arguments, password=PASSWORD):
        given = ["tasks.train=tasks.jsonl", "context_config.prompt_version=webrl", *mail_settings(SITE, mail)]
        given += [f"browser.auth_folder={tmp_path / 'auth'}"]
        words = ["rollout", "run", "-c", "webarena", "--json", "--episodes", "2", "--policy", policy.url]
        words += [word for one in (*given, *arguments) for word in ("-s", one)]
        done = await asyncio.to_thread(webgym, *words, cwd=tmp_path, code=None, WEBARENA_GITLAB_PASSWORD=password)
        assert not password or password not in done.stdout + done.stderr
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    return call


async def test_what_a_rollout_lacks_is_told_before_anything_is_written(rollout, tmp_path):
    code, events, summary = await rollout(password="")
    assert (code, events) == (2, [])
    assert "the variable WEBARENA_GITLAB_PASSWORD is not set" in summary
    code, events, summary = await rollout("sites.gitlab.login=manual")
    assert (code, events) == (3, [])
    assert summary == f"webgym: the login of {SITE} is of no use: missing\n  next: webgym login {SITE} -c webarena\n"
    code, events, summary = await rollout(f"sites.{SITE}.url=")
    assert (code, events) == (2, [])
    assert f"sites.{SITE}.url is empty: where is the site {SITE}?" in summary
    assert "task t" in summary
    assert not (tmp_path / "run").exists()


async def test_a_plan_notes_what_nothing_scores_and_what_cannot_be_reached(tmp_path, mail):
    async def plan(*words):
        return json.loads((await asyncio.to_thread(webgym, *words, cwd=tmp_path)).stdout)["notes"]

    tasks = {
        "refused": {"start_url": "http://10.1.2.3/a"},
        "public": {"start_url": "http://8.8.8.8/a", "check": "done"},
        "of-a-site": {"start_url": f"{mail.url}/a"},
        "silent": {"start_url": "/a", "site": "silent"},
        "started-by-its-reset": {"start_url": "/a", "site": "started"},
        "of-another-host": {"start_url": "http://10.1.2.4/a", "site": "answers"},
    }
    lines = [json.dumps({"id": id_, "environment": "web", "instruction": "Go.", **one}) for id_, one in tasks.items()]
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines))
    done = "from webgym_cli.scoring import check\n\n\n@check('done')\ndef done():\n    return 1\n"
    (tmp_path / "done.py").write_text(done)
    changes = [f"sites.answers.url={mail.url}", "sites.silent.url=http://127.0.0.1:9", "plugins=[done.py]"]
    changes += ["sites.started.url=http://127.0.0.1:9", "sites.started.isolation=reset", "tasks.train=tasks.jsonl"]
    changes += ["sites.started.reset=make -s start", "context_config.prompt_version=complete"]
    words = [word for change in changes for word in ("-s", change)]
    command = ("rollout", "run", "--dry-run", "--episodes", "6", "--policy", "http://127.0.0.1:9/v1", *words)
    unscored, refused, silent = await plan(*command)
    assert unscored == "5 tasks without a check, and judge.base_url is empty: nothing scores them"
    assert refused.startswith("1 task can't start: 10.1.2.3 is a private address (allow its host with")
    assert silent.startswith("site silent (http://127.0.0.1:9): start the site, or fix sites.silent.url: ")
    assert await plan(*command, "-s", "browser.private_hosts=[10.0.0.0/8]") == [unscored, silent]
    large = "-s", "browser.width=1920", "-s", "browser.height=1080"
    notes = await plan(*command, *large)
    assert notes[2].startswith("screenshots of 1920 x 1080 pixels (browser.width, browser.height) are above image.")
    assert await plan(*command, *large, "--split", "test") == [unscored, refused, silent]


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
async def test_each_episode_has_the_site_to_itself_after_a_reset_and_is_logged_in(rollout, mail, tmp_path):
    reset = (f"sites.{SITE}.isolation=reset", f"sites.{SITE}.reset={mail.url}/reset", "rollout.concurrency=2")
    code, events, summary = await rollout(*reset)
    assert code == 0, summary
    plan, sites, login = events[:3]
    assert (plan["event"], plan["sites"]) == ("plan", {SITE: "reset"})
    assert (sites["event"], sites["sites"]) == ("sites", {SITE: "reset"})
    assert f"sites: {SITE} one at a time, after a reset" in summary
    assert (login["event"], login["sites"]) == ("login", [SITE])
    assert [event["reward"] for event in events if event["event"] == "trajectory"] == [1.0, 1.0]
    assert (mail.resets, mail.logins) == (2, 3)
    assert PASSWORD not in "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
async def test_a_reset_that_fails_is_a_failure_and_no_score(rollout):
    broken = (f"sites.{SITE}.isolation=reset", f"sites.{SITE}.reset=sh -c 'echo no disk; exit 3'")
    code, events, _ = await rollout(*broken, "rollout.max_attempts=1")
    assert code == 1
    ended = [event for event in events if event["event"] == "trajectory"]
    assert [(event["reward"], event["failure"]) for event in ended] == [(None, "environment_unavailable")] * 2
    assert all(f"the reset of {SITE} failed" in event["failure_detail"] for event in ended)
    assert "no disk" in ended[0]["failure_detail"]
