import subprocess
import sys

import pytest
from pydantic import ValidationError

from tests.tables import each
from webgym_cli.records.task import DifficultyBand, Task


def test_the_key_is_the_same_in_every_process():
    code = "from webgym_cli.records.task import Task; print(Task(id='a', extra={'x': [1, 'é']}).key)"
    rows = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert rows == {Task(id="a", extra={"x": [1, "é"]}).key}


def test_the_key_depends_on_the_content_not_on_the_order_of_its_extras():
    one, other = {"x": 1, "y": {"p": 1, "q": 2}}, {"y": {"q": 2, "p": 1}, "x": 1}
    assert Task(id="a", extra=one).key == Task(id="a", extra=other).key


@each(
    "change",
    [
        *({"id": "b"}, {"instruction": "x"}, {"start_url": "u"}, {"difficulty": 2}, {"rubric": ("f",)}),
        *({"extra": {"x": 1}}, {"site": "s"}, {"role": "r"}, {"check": "c"}),
    ],
)
def test_other_content_has_another_key(change):
    key = Task.model_validate({"id": "a", **change}).key
    assert key != Task(id="a").key
    assert len(key) == 16
    assert set(key) <= set("0123456789abcdef")


def test_a_task_without_a_site_has_the_key_of_older_versions():
    assert Task(id="a", instruction="Do.").key == "07c8346ecf06ff9c"


def test_bands():
    bands = [DifficultyBand.of(facts).value for facts in (1, 3, 4, 6, 7, 100)]
    assert bands == ["easy", "easy", "medium", "medium", "hard", "hard"]
    assert Task(id="a", difficulty=4).band is DifficultyBand.MEDIUM


@pytest.mark.parametrize("values", [{"id": ""}, {"id": "a", "difficulty": 0}, {"id": "a", "environment": ""}], ids=str)
def test_what_is_no_task_is_refused(values):
    with pytest.raises(ValidationError):
        Task.model_validate(values)
