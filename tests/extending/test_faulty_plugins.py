"""A plug-in that fails, or returns what it must not, ends a command with one line that names the place."""

from pathlib import Path

import pytest

from tests import forked

PLUGIN = (Path(__file__).parent / "dial_plugin.py").read_text()
LISTED = "    goals = range(1, 5)"
FORMAT = """
from webgym_cli.tasks.convert import convert_records
from webgym_cli.tasks.registry import TASK_FORMATS, TaskFormat

TASK_FORMATS.register("quiz", TaskFormat(lambda path, settings, sites: convert_records(path, read)))


def read(record, place):
    %s
"""


@pytest.fixture
def webgym(tmp_path):
    def run(text, *words, code=1, **variables):
        (tmp_path / "plugin.py").write_text(text)
        ended = forked.webgym(*words, "-s", 'plugins=["plugin.py"]', cwd=tmp_path, code=code, **variables)
        return [line for line in ended.stderr.splitlines() if line.startswith("webgym: ")][-1]

    return run


@pytest.mark.parametrize(
    ("line", "fault", "words"),
    [
        (LISTED, 'raise KeyError("boom")', ("plugin.py:", "in list_tasks", "KeyError: 'boom'")),
        (LISTED, 'open("/none")', ("plugin.py:", "in list_tasks", "FileNotFoundError")),
        (LISTED, "raise SystemExit(3)", ("plugin.py:", "in list_tasks", "SystemExit: 3")),
        (LISTED, "return [5]", ("list of tasks for dial:all returned int, not Task",)),
        ("        return DialEnvironment()", "1 / 0", ("in new", "ZeroDivisionError")),
        ("        return DialEnvironment()", "return None", ("NoneType",)),
        (
            "        self.value, self.goal =",
            "return None",
            ("6 x internal_error", "reset returned NoneType, not tuple"),
        ),
        ("        await asyncio.sleep(float", "return 5", ("6 x internal_error", "step returned int")),
        (
            "        await asyncio.sleep(float",
            "raise SystemExit(3)",
            ("6 x internal_error", "SystemExit: 3", "in step"),
        ),
        ("        pass\n\n\nclass", "raise SystemExit(3)", ("6 x internal_error", "SystemExit: 3", "in close")),
    ],
)
def test_an_environment(webgym, line, fault, words):
    indent = line[: -len(line.lstrip())]
    text = PLUGIN.replace(line, f"{indent}{fault}\n{line}")
    error = webgym(text, "rollout", "r", "--policy", "oracle", "--episodes", 2, "-s", "tasks.train=dial:all")
    assert all(word in error for word in words), error


@pytest.mark.parametrize(
    ("line", "fault", "words"),
    [
        ("    EnvironmentSpec(", "    (EnvironmentSpec(", ("dial is no environment", "tuple")),
        ('        name="dial",', '        name="dial", max_steps=5,', ("max_steps is 5, not a function",)),
    ],
)
def test_an_item_of_another_type_is_refused_where_it_is_registered(webgym, line, fault, words):
    text = PLUGIN.replace("max_steps=lambda settings, task, split: settings.agent.max_turns,", "")
    text = text.replace(line, fault)
    if "(Env" in fault:
        text = text.rstrip().removesuffix(")") + "),)\n"
    error = webgym(text, "rollout", "r", "--episodes", 2, "-s", "tasks.train=dial:all", code=2)
    assert all(word in error for word in ("plugin", *words)), error


@pytest.mark.parametrize(
    ("fault", "words"),
    [("raise KeyError('boom')", ("plugin.py:", "in read", "KeyError")), ("return None", ("NoneType, not Task",))],
)
def test_a_task_format(webgym, tmp_path, fault, words):
    (tmp_path / "quiz.json").write_text('[{"question": "How heavy?"}]')
    error = webgym(FORMAT % fault, "tasks", "convert", "quiz.json", "--format", "quiz", "-o", "out.jsonl")
    assert all(word in error for word in words), error
    assert not (tmp_path / "out.jsonl").exists()
