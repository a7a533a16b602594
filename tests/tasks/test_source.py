import json
import os
import tracemalloc

import pytest

from tests.tasks.lines import webgym, write
from webgym_cli.errors import UsageError
from webgym_cli.records.task import DifficultyBand, Task
from webgym_cli.tasks.format import read_task
from webgym_cli.tasks.source import open_tasks


@pytest.fixture
def file(tmp_path):
    return tmp_path / "t.jsonl"


def everything(source):
    tasks = open_tasks(str(source))
    return list(tasks.read(range(len(tasks))))


def test_a_file_is_an_index_of_its_lines(file):
    levels = [1, 4, 7, 3]
    write(file, *(webgym(number, difficulty=level) for number, level in enumerate(levels)))
    tasks = open_tasks(str(file))
    assert len(tasks) == 4
    assert tasks.task(2) == read_task(webgym(2, difficulty=7))
    assert [task.id for task in tasks.read([3, 0, 3])] == ["insta-3", "insta-0", "insta-3"]
    assert [tasks.band(number) for number in range(4)] == [
        DifficultyBand.EASY,
        DifficultyBand.MEDIUM,
        DifficultyBand.HARD,
        DifficultyBand.EASY,
    ]
    assert list(tasks.indices(DifficultyBand.EASY)) == [0, 3]
    assert list(tasks.indices(DifficultyBand.HARD)) == [2]
    assert tasks.on_sites(["shop1.co.uk"]) == {1}


def test_sites_are_found_by_their_registrable_domain(file):
    addresses = ["shop.a.co.uk", "https://A.co.uk/x", "b.co.uk", "http://127.0.0.1:80/", "http://127.0.0.1:81/"]
    write(file, *(webgym(number, website=address) for number, address in enumerate(addresses)))
    tasks = open_tasks(str(file))
    assert tasks.on_sites(["a.co.uk"]) == {0, 1}
    assert tasks.on_sites({"b.co.uk", "127.0.0.1"}) == {2, 3}
    assert tasks.on_sites({"127.0.0.1:81"}) == {4}
    assert tasks.on_sites(["c.com", ""]) == frozenset()
    assert open_tasks("miniwob:all").on_sites([""]) == frozenset()


def test_equal_tasks_count_once(file):
    ours = {"id": "x", "instruction": webgym(1)["task_name"], "start_url": "https://www.shop1.co.uk", "difficulty": 2}
    changes = (
        {"task_id": "other", "domain": "Elsewhere"},
        {"difficulty": 3},
        {"website": "b.com"},
        {"task_name": "E."},
    )
    write(file, webgym(0), webgym(1), ours, *(webgym(0, **fields) for fields in changes))
    tasks = open_tasks(str(file))
    assert (len(tasks), tasks.duplicates) == (5, 2)
    assert [task.id for task in tasks.read(range(5))] == ["insta-0", "insta-1", "insta-0", "insta-0", "insta-0"]
    assert tasks.task(2).difficulty == 3


DO = {"id": "a", "instruction": "Do.", "start_url": "http://a.com"}
ASK = {"question": "Find x.", "answer": "1", "images": ["a.png"]}
SEND = {"instruction": "Send it.", "start_url": "http://a.com", "environment": "web", "upload_folder": "x"}
BUY = {"instruction": "Buy.", "start_url": "http://a.com", "environment": "web", "check": "bought"}


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        # the environment draws the instruction
        ([{"id": "click-test"}, {"id": "click-dialog"}, {"id": "click-test"}], 2),
        ([DO, {**DO, "site": "s"}, {**DO, "site": "s", "role": "r"}, {**DO, "check": "c"}, DO], 4),
        ([ASK, {**ASK, "images": ["b.png"]}, {**ASK, "answer": "2"}, ASK], 3),
        ([SEND, {**SEND, "upload_folder": "y"}, {**SEND, "topic": "z"}], 2),
        ([{**BUY, "id": f"t{number}", "stock": number} for number in (1, 2, 2)], 2),
    ],
    ids=["pages", "roles and checks", "files of questions", "uploads", "what a check reads"],
)
def test_tasks_that_differ_in_what_counts_are_no_duplicates(file, lines, count):
    write(file, *lines)
    tasks = open_tasks(str(file))
    assert (len(tasks), tasks.duplicates) == (count, len(lines) - count)
    assert lines[0] != ASK or len({task.id for task in tasks.read((0, 1))}) == 2


def test_a_task_file_keeps_what_we_do_not_know(file):
    file.write_text(
        '{"id": "a", "instruction": "Do.", "start_url": "http://a.com", "topic": "x", "extra": {"y": 1}}\n\n'
        '{"id": "click-test", "start_url": "click-test.html", "difficulty": 5}\n'
    )
    assert everything(file) == [
        Task(id="a", instruction="Do.", start_url="http://a.com", environment="web", extra={"topic": "x", "y": 1}),
        Task(id="click-test", start_url="click-test.html", difficulty=5),
    ]


def test_line_ends_separators_and_a_byte_order_mark_do_not_shift_the_lines(file):
    first = json.dumps(webgym(0, task_name="x\u2028y\x85z"), ensure_ascii=False)
    rest = [json.dumps(webgym(number, task_name="ü" * number)) for number in (1, 2)]
    file.write_bytes(f"\ufeff{first}\r\n\r\n  \n{rest[0]}\r\n{rest[1]}".encode())
    assert [task.instruction for task in everything(file)] == ["x\u2028y\x85z", "ü", "üü"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("5", "a task must be a JSON object"),
        ("[]", "a task must be a JSON object"),
        ("{}", "the fields id and instruction are missing"),
        ('{"id": ""}', "id: "),
        ('{"id": [5]}', "id: "),
        ('{"id": "a", "difficulty": 0}', "difficulty: "),
        ('{"id": "a", "environment": "mars"}', "environment: "),
        ('{"id": "a", "extra": 5}', "extra: "),
        ('{"id": "a", "rubric": 5}', "rubric: "),
        ('{"id": "a", "environment": "web", "start_url": "http://a.com"}', "instruction: "),
        ('{"id": "a", "environment": "web", "instruction": "Do."}', "start_url: "),
        ('{"id": "a", "start_url": "ftp://a.com"}', "start_url: "),
        ("[" * 100_000, "not JSON"),
    ],
    ids=lambda value: value[:60],
)
def test_a_bad_task_names_file_and_line(file, line, reason):
    write(file, {"id": "click-test"}, "", line, "{")
    with pytest.raises(UsageError) as caught:
        open_tasks(str(file))
    assert str(caught.value).startswith(f"{file}:3: {reason}")
    assert caught.value.hint == f"fix line 3 of {file}; all bad lines: webgym tasks check {file}"


def test_an_unknown_page_is_told_with_what_is_meant(file):
    write(file, {"id": "a", "start_url": "clik-test.html"})
    with pytest.raises(UsageError, match="MiniWoB has no page 'clik-test") as caught:
        open_tasks(str(file))
    assert caught.value.hint.startswith(f"fix line 1 of {file}: start_url takes a page's name")


def test_a_task_file_that_is_empty_or_missing_or_binary_or_a_folder_or_a_pipe_is_told(tmp_path):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("empty", "missing", "binary", "folder", "pipe"):
        with pytest.raises(UsageError, match=name) as caught:
            open_tasks(str(tmp_path / name))
        assert caught.value.hint


def test_a_file_is_indexed_once_until_it_changes_and_one_that_changed_meanwhile_is_told(file):
    write(file, webgym(0), webgym(1))
    tasks = open_tasks(str(file))
    assert open_tasks(str(file)) is tasks
    write(file, webgym(5), webgym(1), webgym(2))
    assert len(open_tasks(str(file))) == 3
    with pytest.raises(UsageError, match="changed while it was in use"):
        tasks.task(1)
    file.unlink()
    with pytest.raises(UsageError, match="can't be read"):
        tasks.task(1)


def test_miniwob_pages_are_tasks_and_unknown_ones_are_refused():
    assert everything("miniwob:click-test, click-dialog") == [
        Task(id="click-test", start_url="click-test.html"),
        Task(id="click-dialog", start_url="click-dialog.html"),
    ]
    assert len(open_tasks("miniwob:all")) > 50
    for source in ("miniwob:", "miniwob:nosuch", "miniwob:click-test,nosuch"):
        with pytest.raises(UsageError) as caught:
            open_tasks(source)
        assert caught.value.hint


def test_the_tasks_of_the_fixture_sites(monkeypatch):
    from webgym_cli.environments.fixture_sites import tasks as sites

    names = ("cart", "tour", "post")
    by_name = {name: sites.SiteTask(name, "shop.test", f"Do {name}.", {"a": "true"}) for name in names}
    monkeypatch.setattr(sites, "load_site_tasks", lambda: by_name)
    assert everything("sites:all") == [one.task for one in by_name.values()]
    assert everything("sites:post,cart") == [by_name["post"].task, by_name["cart"].task]
    with pytest.raises(UsageError, match="no task 'nosuch'") as caught:
        open_tasks("sites:cart,nosuch")
    assert "cart, tour, post" in caught.value.hint


def test_an_index_takes_a_small_part_of_its_file(file):
    open_tasks(str(write(file, webgym())))  # what is loaded once is no part of it
    with file.open("w") as lines:
        lines.writelines(json.dumps(webgym(number)) + "\n" for number in range(20_000))
    tracemalloc.start()
    try:
        tasks = open_tasks(str(file))
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(tasks) == 20_000
    assert kept < 1_200_000, "25 bytes in arrays and 8 for the offset, with their reserve"
    assert most < 400 * len(tasks), "hashes of what was seen and of the hosts, while it is built"
