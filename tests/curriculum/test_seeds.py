import json
from itertools import chain

import pytest

from tests.environments.webarena.webarena_records import record
from webgym_cli.curriculum.prompts import build_generation_chat
from webgym_cli.curriculum.seeds import FailedTask, build_task, group_by_site, group_name, list_forms, plan_requests
from webgym_cli.environments.webarena.tasks import evaluation_of, read_config
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Observation
from webgym_cli.tasks.check import Checker, FileReport
from webgym_cli.tasks.expand import expand_templates
from webgym_cli.tasks.format import parse_task

SITES = {"shopping": "http://shop.test:7770", "gitlab": "http://git.test", "reddit": "http://forum.test"}


def web(number, url="http://a.test/x", **changes):
    task = Task(id=f"t{number}", instruction=f"Find {number}", start_url=url, environment="web", **changes)
    return FailedTask(task, task.instruction, Observation(url=url, title="A"))


def arena(number, **changes):
    task = read_config(record(task_id=number, intent=f"Buy {number}", **changes), SITES)
    return FailedTask(task, task.instruction, None)


def test_seeds_are_grouped_by_webarena_s_sites_and_else_by_the_host():
    both = arena(3, sites=["reddit", "gitlab"], start_url="__REDDIT__ |AND| __GITLAB__")
    groups = group_by_site([web(2), web(1), web(9, "http://b.test:8000/"), arena(4), both])
    assert [(group.site, [seed.task.id for seed in group.seeds]) for group in groups] == [
        ("a.test", ["t1", "t2"]),
        ("b.test:8000", ["t9"]),
        ("gitlab+reddit", ["3"]),
        ("shopping", ["4"]),
    ]
    assert group_name(Task(id="x", environment="webarena", start_url="__MAP__")) == "__MAP__"


def test_every_seed_is_shown_before_any_is_shown_again_and_the_seed_decides_when():
    seeds = [web(number) for number in range(6)]
    groups = group_by_site(seeds)
    rounds = plan_requests(groups, 4, 3, 7)
    shown = [[seed.task.id for seed in request.seeds] for (request,) in rounds]
    assert all(len(set(chain(*shown[start : start + 2]))) == 6 for start in (0, 2))
    assert [request.round for (request,) in rounds] == [0, 1, 2, 3]
    assert plan_requests(groups, 4, 3, 7) == rounds != plan_requests(groups, 4, 3, 8)
    assert plan_requests(groups, 2, 3, 7) == rounds[:2]
    both = plan_requests(group_by_site([*seeds, arena(1)]), 2, 3, 7)  # another site changes nothing
    assert [(len(requests), requests[0]) for requests in both] == [(2, request) for (request,) in rounds[:2]]
    ((request,),) = plan_requests(group_by_site(seeds[1:3]), 1, 10, 0)
    assert sorted(seed.task.id for seed in request.seeds) == ["t1", "t2"]


def test_a_new_task_starts_where_most_do_and_is_about_as_hard():
    seeds = [web(1, difficulty=9), web(2, "http://a.test/y", difficulty=2), web(3, "http://a.test/y", difficulty=3)]
    ((request,),) = plan_requests(group_by_site(seeds), 1, 2, 0)
    task = build_task("Find it all", request)
    assert (task.start_url, task.difficulty, task.environment) == ("http://a.test/y", 3, "web")
    assert task.extra == {"generated": True, "seeds": [seed.task.id for seed in request.seeds]}
    assert parse_task(task.model_dump_json().encode()) == task
    assert build_task("Find it all", request).id == task.id != build_task("Find that", request).id


def test_a_new_task_of_webarena_s_has_a_login_and_no_score_of_its_own():
    ((request,),) = plan_requests(group_by_site([arena(1, storage_state="./.auth/shopping_state.json")]), 1, 10, 0)
    task = build_task("Buy another", request)
    assert (task.extra["sites"], task.extra["storage_state"]) == (["shopping"], "./.auth/shopping_state.json")
    assert (task.extra["start_urls"], task.extra["generated"]) == ([task.start_url], True)
    assert evaluation_of(task) is None
    assert evaluation_of(task.model_copy(update={"extra": {**task.extra, "generated": False}})) is None
    report = FileReport("new")
    assert list(Checker().check("new", [task.model_dump_json().encode()], report)) == []
    assert report.tasks == 1


def test_a_new_task_on_a_site_starts_there_as_the_same_role():
    seeds = [web(at, "/orders", site="desk", role=role) for at, role in enumerate("aab")]
    groups = group_by_site(seeds)
    assert [(group.site, len(group.seeds)) for group in groups] == [("desk@a", 2), ("desk@b", 1)]
    task = build_task("Find it all", plan_requests(groups, 1, 2, 0)[0][0])
    assert (task.site, task.role, task.start_url, task.environment) == ("desk", "a", "/orders", "web")


def form(name, check, instruction, **fields):
    return {"id": name, "site": "desk", "check": check, "instruction": instruction, **fields}


DELETE = form("delete", "groups", "Delete the group {group}.", gone="{group}", todo="delete")
RENAME = form("rename", "groups", "Rename {group} to {group} team.", made="{group} team")
COUNT = form("count", "count", "Count the {table.name}.", table="{table.id}")
HIDDEN = form("hidden", "user", "Rename the user {user}.", value="{group}")


@pytest.fixture
def failed(tmp_path):
    """Failed tasks that were made from templates."""
    start = {"environment": "web", "start_url": "http://desk.test/"}
    parameters = {"group": ["Billing"], "table": [{"name": "users", "id": 7}], "user": ["ann"]}
    templates = [{**template, **start} for template in (DELETE, RENAME, COUNT, HIDDEN)]
    (tmp_path / "templates.yaml").write_text(json.dumps({"parameters": parameters, "templates": templates}))
    tasks = expand_templates(tmp_path / "templates.yaml").train
    return [FailedTask(parse_task(task.model_dump_json().encode()), task.instruction, None) for task in tasks]


@pytest.mark.parametrize(
    ("instruction", "check", "fields"),
    [
        ("Delete the group Press and more.", "groups", {"group": "Press and more", "gone": "Press and more"}),
        ("Rename Legal to Legal team.", "groups", {"group": "Legal", "made": "Legal team"}),
        ("Rename Legal to Press team.", "", {}),
        ("Delete the group .", "", {}),
        ("Please delete the group Press.", "", {}),
        ("Count the groups.", "", {}),
        ("Rename the user ben.", "", {}),
    ],
)
def test_a_new_task_has_the_check_of_the_template_whose_form_it_has(failed, instruction, check, fields):
    ((request,),) = plan_requests(group_by_site(failed), 1, 2, 0)
    task = build_task(instruction, request)
    assert (task.instruction, task.check, task.site) == (instruction, check, "desk")
    assert task.id.startswith("generated-") and task.extra["generated"]
    assert task.extra.items() >= fields.items()
    again = build_task(instruction, plan_requests(group_by_site([FailedTask(task, instruction, None)]), 1, 1, 0)[0][0])
    assert again.check == check, "a generated task can be a seed of others"


def test_the_forms_of_the_templates_are_asked_for(failed):
    (group,) = group_by_site(failed)
    forms = list_forms(group)
    assert forms == [DELETE["instruction"], RENAME["instruction"]]
    chat = json.dumps(build_generation_chat("desk", "http://desk.test/", [], ["x"], 3, forms))
    assert "{group}" in chat and "`forms`" in chat
    assert "forms" not in json.dumps(build_generation_chat("desk", "http://desk.test/", [], ["x"], 3))
