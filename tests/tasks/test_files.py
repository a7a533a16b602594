"""Files that tasks name: only those below the task file's folder, or in folders that the user allows."""

import pytest

from webgym_cli.config.load import load
from webgym_cli.environments.registry import check_tasks
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Split, Task
from webgym_cli.tasks.files import place_files


@pytest.fixture
def folder(tmp_path):
    """A folder with a task file, a folder and a picture, and links to others outside."""
    folder, other = tmp_path / "tasks", tmp_path / "other"
    for place in (folder / "mine", other):
        place.mkdir(parents=True)
        (place / "a.png").write_bytes(b"")
    (folder / "link").symlink_to(other)
    (folder / "link.png").symlink_to(other / "a.png")
    return folder


def check(folder, environment, extra, *overrides, split=Split.TRAIN):
    task = Task(id="t", instruction="x", start_url="https://a.example", environment=environment, extra=extra)
    settings = load(overrides=[f"tasks.train={folder / 'tasks.jsonl'}", *overrides])
    check_tasks(settings, [place_files(task, folder)], split)


@pytest.mark.parametrize(
    "uploads", ["/etc", "..", "../other", "mine/../../other", "link", "link/../..", "nosuch", 5, ["a"]]
)
def test_folders_elsewhere_are_refused(folder, uploads):
    with pytest.raises(UsageError, match="task t: upload_folder: "):
        check(folder, "web", {"upload_folder": uploads})


@pytest.mark.parametrize("image", ["/etc/passwd", "../other/a.png", "link/a.png", "link.png", "mine/b.png", 5])
def test_images_elsewhere_are_refused(folder, image):
    with pytest.raises(UsageError, match="task t: images: "):
        check(folder, "tools", {"images": [image], "answer": "1"})


def test_files_beside_the_task_file_are_allowed(folder):
    check(folder, "web", {"upload_folder": "mine"})
    check(folder, "web", {"upload_folder": str(folder / "mine")})
    check(folder, "web", {"upload_folder": None, "images": ["https://a.example/not-read.png"]})
    check(folder, "tools", {"images": ["mine/a.png", "data:image/png;base64,"], "answer": "1"})


def test_the_folder_of_the_other_splits_task_file_is_not_the_tasks_own(folder):
    test = f"tasks.test={folder.parent / 'other/test.jsonl'}"
    with pytest.raises(UsageError, match="task t: upload_folder: "):
        check(folder, "web", {"upload_folder": "../other"}, test)
    with pytest.raises(UsageError, match="task t: images: "):
        check(folder, "tools", {"images": ["mine/a.png"], "answer": "1"}, test, split=Split.TEST)
    check(folder, "web", {"upload_folder": "../other"}, test, split=Split.TEST)
    check(folder, "web", {"upload_folder": "mine"}, split=Split.TEST)


def test_a_setting_allows_other_folders(folder):
    other = f'rollout.file_folders=["{folder.parent / "other"}"]'
    check(folder, "web", {"upload_folder": "link"}, other)
    check(folder, "tools", {"images": ["link.png"], "answer": "1"}, other)
    with pytest.raises(UsageError) as refused:
        check(folder, "web", {"upload_folder": "/etc"}, other)
    assert str(folder.parent / "other") in refused.value.hint and "/etc" in refused.value.hint
