"""Which environments can be made."""

import subprocess
import sys

import pytest

from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.environments.miniwob.environment import MiniWobPool
from webgym_cli.environments.registry import check_tasks, find_environment, require_experts
from webgym_cli.environments.webarena.environment import WebArenaPool
from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.records.task import Task
from webgym_cli.tasks.source import open_tasks


def test_known_and_unknown_names():
    assert isinstance(find_environment("miniwob").make_pool(Settings()), MiniWobPool)
    assert isinstance(find_environment("webarena").make_pool(Settings()), WebArenaPool)
    with pytest.raises(UsageError, match="no environment 'gym'"):
        find_environment("gym").make_pool(Settings())


def one_task(environment: str, **extra: object) -> list[Task]:
    return [Task(id="t", environment=environment, start_url="http://a.test/", extra=extra)]


WEBRL = "context_config.prompt_version=webrl"


def test_pages_as_text_and_pictures_are_not_mixed():
    check_tasks(load(overrides=[WEBRL]), one_task("webarena"))
    check_tasks(load(overrides=[WEBRL]), one_task("tools", answer="1"))
    check_tasks(Settings(), [*one_task("web"), *one_task("miniwob"), *one_task("tools", answer="1")])
    check_tasks(load(overrides=[WEBRL]), one_task("web"))
    for environment in ("miniwob", "sites"):
        with pytest.raises(SettingsError, match="no prompt version webrl") as caught:
            check_tasks(load(overrides=[WEBRL]), one_task(environment))
        assert caught.value.hint == "-s context_config.prompt_version=complete"
    with pytest.raises(SettingsError, match="no prompt version") as caught:
        check_tasks(Settings(), one_task("webarena"))
    assert caught.value.hint == f"-s {WEBRL}"


FUZZY = {"eval_types": ["string_match"], "reference_answers": {"fuzzy_match": ["red"]}}


@pytest.mark.parametrize("judge", ["", "scripted"])
def test_a_fuzzy_match_needs_a_model_as_its_judge(judge):
    with pytest.raises(SettingsError, match=r"task t: .* fuzzy_match") as caught:
        check_tasks(load(overrides=[WEBRL, f"judge.base_url={judge}"]), one_task("webarena", eval=FUZZY))
    assert "judge.base_url=" in caught.value.hint
    check_tasks(load(overrides=[WEBRL, "judge.base_url=http://127.0.0.1:1/v1"]), one_task("webarena", eval=FUZZY))


def place(locator: str) -> dict[str, object]:
    target = {"url": "last", "locator": locator, "required_contents": {"exact_match": "Ann"}}
    return {"eval_types": ["program_html"], "program_html": [target]}


def test_what_an_evaluation_asks_of_the_shop_is_looked_for_before(monkeypatch):
    review = place("func:shopping_get_sku_latest_review_author('B1')")
    with pytest.raises(SettingsError, match=r"sites\.shopping\.url is empty"):
        check_tasks(load(overrides=[WEBRL]), one_task("webarena", eval=review))
    known = [f"sites.{site}.url=http://shop.test" for site in ("shopping", "shopping_admin")]
    monkeypatch.delenv("WEBARENA_SHOPPING_ADMIN_PASSWORD", raising=False)
    with pytest.raises(UsageError, match="WEBARENA_SHOPPING_ADMIN_PASSWORD"):
        check_tasks(load(["webarena"], [WEBRL, *known]), one_task("webarena", eval=review))
    monkeypatch.setenv("WEBARENA_SHOPPING_ADMIN_PASSWORD", "x")
    check_tasks(load(["webarena"], [WEBRL, *known]), one_task("webarena", eval=review))


def test_an_evaluation_that_can_not_be_read_is_refused_and_only_the_fixture_has_an_expert():
    with pytest.raises(UsageError, match=r"task t: eval\."):
        check_tasks(load(overrides=[WEBRL]), one_task("webarena", eval=place("page.title()")))
    tasks = open_tasks("webarena:fixture")
    require_experts(Settings(), tasks.read(range(len(tasks))))
    with pytest.raises(UsageError, match="no expert") as caught:
        require_experts(Settings(), one_task("webarena"))
    assert "webarena:fixture" in caught.value.hint


def test_importing_an_environment_loads_no_driver():
    module = "webgym_cli.environments.miniwob.environment"
    code = f"import sys, {module}; sys.exit(bool({{'playwright', 'PIL'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
