"""Action sets: the built-in ones and one that a plugin file registers, by the same registry."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from tests.records.builders import new_run, step, trajectory
from webgym_cli.agent.actions.action_sets import ACTION_SETS, find_action_set, make_action_set
from webgym_cli.agent.actions.parse import ParseError
from webgym_cli.agent.forms.tools import describe_action
from webgym_cli.agent.prompt import render, render_step
from webgym_cli.agent.prompts.orm_prompt import build_orm_prompt
from webgym_cli.config.load import load
from webgym_cli.environments.registry import check_tasks
from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.imports.plan import plan_import
from webgym_cli.imports.registry import IMPORT_FORMATS
from webgym_cli.prepare.sft.convert import build_trajectory_sample
from webgym_cli.records.action import CustomAction, InteractionMode
from webgym_cli.records.sample import Message
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Observation, ParseErrorKind, PromptSpec, PromptVersion, Trajectory

PLUGIN = """
from webgym_cli.agent.actions.action_sets import ACTION_SETS, make_action_set
from webgym_cli.records.action import CustomAction


def parse(response):
    verb, _, way = response.strip().rpartition(" ")
    if not verb.endswith("go"):
        raise ValueError(f"no move: {way}")
    return CustomAction(name="go", arguments={"way": way})


ACTION_SETS.register("compass", make_action_set(
    "Reply with go and a point of the compass.", parse, lambda action: f"go {action.arguments['way']}"
))
"""


@pytest.fixture
def compass(tmp_path):
    """The settings of a run whose policy walks by a compass."""
    (tmp_path / "compass.py").write_text(PLUGIN)
    given = [f'plugins=["{tmp_path / "compass.py"}"]', "context_config.prompt_version=compass"]
    yield load(overrides=given)
    ACTION_SETS.registered.pop("compass", None)


def parse(response, spec, *, truncated=False):
    return find_action_set(spec).parse(response, spec, truncated=truncated, max_calls=1)


def test_the_actions_of_a_plugin_are_told_read_and_written(compass):
    spec = PromptSpec(version=compass.context_config.prompt_version)
    seen = Observation(url="toy://start", html="a fork in the road")
    system, user = render(spec, "Find the well", "toy://start", (), seen).messages
    assert (system.role, system.content) == ("system", "Reply with go and a point of the compass.")
    assert user.role == "user" and user.content.startswith("Task: Find the well")
    assert "a fork in the road" in user.content and "left out" not in user.content
    action = parse("I see a well. go north", spec)
    assert action == CustomAction(name="go", arguments={"way": "north"})
    assert find_action_set(spec).format_action(action, InteractionMode.COORDINATES) == "go north"
    assert describe_action(action) == 'go({"way": "north"})'
    assert parse("run", spec) == ParseError(ParseErrorKind.INVALID_ARGUMENTS, "no move: run")
    assert parse("run", spec, truncated=True).kind is ParseErrorKind.TRUNCATED


def test_the_actions_of_a_plugin_are_stored(compass):
    spec = PromptSpec(version="compass")
    went = step(0, action=CustomAction(name="go", arguments={"way": "north"}), response="go north")
    episode = trajectory(0, prompt=spec, steps=(went, step(1)))
    again = Trajectory.model_validate_json(episode.model_dump_json(by_alias=True))
    assert again.steps == episode.steps
    assert (again.prompt.version, type(again.steps[0].action)) == ("compass", CustomAction)
    short = episode.model_copy(update={"prompt": spec.model_copy(update={"history_window": 0})})
    assert 'go({"way": "north"})' in render_step(short, 1).messages[1].content


def test_a_built_in_version_is_read_as_one_and_an_unknown_one_is_named():
    assert PromptSpec(version="webrl").version is PromptVersion.WEBRL
    assert PromptSpec.model_validate_json('{"version": "complete"}').version is PromptVersion.COMPLETE
    assert {"vanilla", "complete", "webrl"} <= set(ACTION_SETS.names())
    with pytest.raises(UsageError, match=r"context_config\.prompt_version: .*'nosuch'"):
        find_action_set(PromptSpec(version="nosuch"))
    options = ACTION_SETS.find("webrl").prompt_options(load(overrides=["context_config.max_characters=9000"]))
    assert options == {"system_prompt": "", "explained": True, "lenient": False, "max_characters": 9000}
    assert ACTION_SETS.find("complete").prompt_options(load()) == {}


@pytest.mark.parametrize(("observes", "refused"), [("picture", {}), ("text", {"miniwob"})])
def test_pages_take_the_action_sets_of_a_plugin_that_observe_as_they_show(compass, observes, refused):
    ACTION_SETS.registered["compass"] = replace(ACTION_SETS.registered["compass"], observes=observes)
    for name in ("web", "miniwob"):
        task = Task(id="t", environment=name, start_url="http://r.test/")
        with pytest.raises(SettingsError) if name in refused else nullcontext():
            check_tasks(compass, [task])


@pytest.mark.parametrize(
    ("stored", "options", "system_prompt"),
    [
        ({"system_prompt": "Do.", "lenient": True, "max_characters": 9}, {"lenient": True, "max_characters": 9}, ""),
        ({"explained": True, "lenient": False, "max_characters": None, "system_prompt": ""}, {}, ""),
        ({"explained": True, "tools": [], "system_prompt": "Call."}, {}, "Call."),
    ],
)
def test_options_that_older_runs_have_beside_the_others_are_read(stored, options, system_prompt):
    own = {"system_prompt": "Do."} if options else {}
    spec = PromptSpec.model_validate({"version": "webrl", **stored})
    assert (spec.options, spec.system_prompt) == (options | own, system_prompt)
    assert PromptSpec.model_validate_json(spec.model_dump_json()) == spec


def render_ledger(spec, instruction, past, current):
    lines = [instruction, *(step.response for step in past), current.html[: spec.options["limit"]]]
    return (Message(role="user", content="\n".join(lines)),), ()


def render_ledger_episode(spec, instruction, past, current):
    earlier = (Message(role="user", content="?"), Message(role="assistant", content=""))
    return (*earlier * len(past), Message(role="user", content=current.html)), ()


@pytest.fixture
def ledger():
    """An episode of an action set that renders its prompts itself, shows pages as text and has an option."""
    own = replace(make_action_set("", str, str), template=None, render=render_ledger, observes="text")
    own = replace(own, prompt_options=lambda settings: {"limit": 5})
    ACTION_SETS.register("ledger", own)
    spec = PromptSpec(version="ledger", options=own.prompt_options(load()))
    seen = Observation(url="toy://start", html="a fork in the road")
    yield trajectory(0, prompt=spec, steps=[step(index, observation=seen, response=f"go {index}") for index in (0, 1)])
    ACTION_SETS.registered.pop("ledger")


def list_contents(messages):
    return [message.content for message in messages]


def test_a_set_that_renders_its_prompts_stores_its_options_and_exports_whole_episodes(ledger):
    again = Trajectory.model_validate_json(ledger.model_dump_json(by_alias=True))
    sent = "Click the button.\ngo 0\na for"
    assert list_contents(render_step(again, 1).messages) == [sent]
    assert list_contents(build_trajectory_sample(again).messages) == [sent, "go 1"]
    ACTION_SETS.registered["ledger"] = replace(ACTION_SETS.find("ledger"), render_episode=render_ledger_episode)
    assert list_contents(build_trajectory_sample(again).messages) == ["?", "go 0", "a fork in the road", "go 1"]


def test_a_set_describes_its_steps_to_a_reward_model(ledger):
    assert build_orm_prompt(ledger, find_action_set(ledger.prompt).describe_step).actions.startswith("click")
    described = replace(ACTION_SETS.find("ledger"), describe_step=lambda spec, step: f"{spec.version}: {step.response}")
    assert build_orm_prompt(ledger, described.describe_step).actions == "ledger: go 0\nledger: go 1"


def test_text_pages_are_imported_for_a_set_that_shows_them_but_not_responses_in_another_language(ledger, tmp_path):
    run = new_run(tmp_path / "run")
    form = replace(IMPORT_FORMATS.find("messages"), text=True, for_policy=None, find=lambda path: [path])
    IMPORT_FORMATS.register("texts", form)
    try:
        assert plan_import(run, "texts", tmp_path, prompt=ledger.prompt).text_prompt == ledger.prompt
        with pytest.raises(UsageError, match="prompt_version=vanilla"):
            plan_import(run, "texts", tmp_path)
    finally:
        IMPORT_FORMATS.registered.pop("texts")
    (tmp_path / "web_policy_sft.json").write_text("[]")
    with pytest.raises(UsageError, match="prompt_version=ledger"):
        plan_import(run, "webrl-data", tmp_path, prompt=ledger.prompt)
    assert plan_import(run, "webrl-data", tmp_path, prompt=PromptSpec(version="webrl")).text_prompt.options["lenient"]
