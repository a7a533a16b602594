import pytest

from webgym_cli.environments.fixture_sites.episode import SiteEpisode
from webgym_cli.environments.fixture_sites.expert import make_expert_run
from webgym_cli.environments.fixture_sites.tasks import find_task, load_site_tasks
from webgym_cli.records.action import Action
from webgym_cli.records.trajectory import Element

SHOP = "http://shop.test/"


def new_expert(task: str):
    return make_expert_run(find_task(task).expert, SiteEpisode(find_task(task), 0).values)


def test_every_task_has_its_expert():
    assert all(find_task(name).expert for name in load_site_tasks())


def test_the_expert_reloads_what_stays_blank():
    expert = new_expert("shop-cheapest")
    assert expert.next(SHOP, [], "") == Action(name="wait", seconds=1)
    assert expert.next(SHOP, [], "") == Action(name="navigate", url=SHOP)


def test_the_expert_scrolls_for_what_is_out_of_sight_and_gives_up_in_the_end():
    expert, lost = new_expert("shop-cheapest"), new_expert("shop-cheapest")
    category = SiteEpisode(find_task("shop-cheapest"), 0).values["category"]
    parts = [scene("Home", f"part {number}") for number in range(6)]
    assert [expert.next(SHOP, part, "Home").direction for part in parts] == ["down"] * 4 + ["up"] * 2
    assert expert.next(SHOP, scene("Home", category), "Home") == Action(name="click", element_id=1)
    still = [lost.next(SHOP, scene("Home"), "Home").direction for _ in range(4)]
    assert still == ["down", "up", "down", "up"]
    with pytest.raises(LookupError, match=f"'{category}'"):
        lost.next(SHOP, scene("Home"), "Home")


def scene(*names: str, role: str = "link") -> list[Element]:
    return [Element(id=at, role=role, name=name, box=(0, 0, 9, 9)) for at, name in enumerate(names)]


def test_the_expert_waits_for_text_and_has_no_more_to_say_after_its_answer():
    expert = new_expert("mail-unread")
    fields = scene("User name", "Password", role="textbox")
    first, second, third = (expert.next("http://mail.test/login", fields, "Log in") for _ in range(3))
    assert first.element_id == 0 and second.text.endswith("\n")
    assert third == Action(name="wait", seconds=1)
    inbox = ("http://mail.test/folder/inbox", fields, "Inbox (12 unread)")
    assert expert.next(*inbox) == Action(name="answer", text="12")
    with pytest.raises(LookupError, match="already given"):
        expert.next(*inbox)
