import pytest

from webgym_cli.environments.fixture_sites.episode import SiteEpisode
from webgym_cli.environments.fixture_sites.expert import make_site_expert
from webgym_cli.environments.fixture_sites.tasks import find_task, load_site_tasks
from webgym_cli.errors import UsageError
from webgym_cli.records.action import Action
from webgym_cli.records.trajectory import Element

TASKS = [task.task for task in load_site_tasks().values()]


def test_every_task_has_its_expert():
    assert all(find_task(task.id).expert for task in TASKS)


def scene(*names: str, role: str = "link") -> list[Element]:
    return [Element(id=at, role=role, name=name, box=(0, 0, 9, 9)) for at, name in enumerate(names)]


def test_the_expert_reloads_what_stays_blank():
    expert = make_site_expert("shop-cheapest", site_instruction("shop-cheapest"))
    assert expert.next("http://shop.test/", [], "") == Action(name="wait", seconds=1)
    assert expert.next("http://shop.test/", [], "") == Action(name="navigate", url="http://shop.test/")


def test_the_expert_scrolls_for_what_is_out_of_sight_and_gives_up_in_the_end():
    expert = make_site_expert("shop-cheapest", site_instruction("shop-cheapest"))
    category = SiteEpisode(find_task("shop-cheapest"), 0).values["category"]
    parts = [scene("Home", f"part {number}") for number in range(6)]
    scrolled = [expert.next("http://shop.test/", part, "Home").direction for part in parts]
    assert scrolled == ["down"] * 4 + ["up"] * 2
    text = expert.next("http://shop.test/", scene("Home", category), "Home")
    assert text == Action(name="click", element_id=1)
    lost = make_site_expert("shop-cheapest", site_instruction("shop-cheapest"))
    still = [lost.next("http://shop.test/", scene("Home"), "Home").direction for _ in range(4)]
    assert still == ["down", "up", "down", "up"]
    with pytest.raises(LookupError, match=f"shows no .* that is called '{category}'"):
        lost.next("http://shop.test/", scene("Home"), "Home")


def test_the_expert_waits_for_text_and_has_no_more_to_say_after_its_answer():
    expert = make_site_expert("mail-unread", site_instruction("mail-unread"))
    fields = scene("User name", "Password", role="textbox")
    assert expert.next("http://mail.test/login", fields, "Log in").element_id == 0
    assert expert.next("http://mail.test/login", fields, "Log in").text.endswith("\n")
    assert expert.next("http://mail.test/login", fields, "Log in") == Action(name="wait", seconds=1)
    text = expert.next("http://mail.test/folder/inbox", fields, "Inbox (12 unread)")
    assert text == Action(name="answer", text="12")
    with pytest.raises(LookupError, match="already given"):
        expert.next("http://mail.test/folder/inbox", fields, "Inbox (12 unread)")


def test_an_unknown_task_and_a_foreign_instruction_are_refused():
    with pytest.raises(UsageError, match="no task 'shop-nothing'"):
        make_site_expert("shop-nothing", "Do it.")
    with pytest.raises(LookupError, match="not understood"):
        make_site_expert("shop-cart", "Do it.")


def site_instruction(task: str) -> str:
    return SiteEpisode(find_task(task), 0).instruction
