"""What the pages claim of the code: the recipe's values, the messages, the examples."""

import ast
import json
import re
from functools import cache

from tests.docs.generated import FORMATS
from tests.docs.pages import ROOT, table_rows
from tests.tables import each
from webgym_cli.config.load import flatten, load
from webgym_cli.config.shipped import shipped_root
from webgym_cli.tasks.format import parse_task

TROUBLESHOOTING = ROOT / "docs/troubleshooting.md"
RECIPE = table_rows(ROOT / "docs/recipes/webgym.md", "## Hyper-parameters")
GAP = "…"
HOURS = ("FLOP per trained token", "bf16 peak, FLOP/s", "hours of 4 iterations")


@cache
def templates() -> list[str]:
    """Every text in the package's code, with a gap for each value that is put into it."""
    values = []
    for file in (ROOT / "webgym_cli").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else GAP for part in node.values]
                values.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                values.append(node.value)
    return values


def messages() -> list[str]:
    """The messages of our own among the first cells: what stands in another program's log is not ours."""
    sections = re.findall(r"^## .+$", TROUBLESHOOTING.read_text(), re.MULTILINE)
    cells = [row[0] for heading in sections for row in table_rows(TROUBLESHOOTING, heading)]
    own = [cell for cell in cells if "in its log" not in cell and "as a failure" not in cell]
    return [message for cell in own for message in re.findall(r"`([^`]{12,})`", cell)]


def occurs(message: str, texts: list[str]) -> bool:
    pieces = [re.escape(piece) for piece in message.split(GAP) if piece.strip(" :;")]
    pattern = re.compile(".*".join(pieces), re.DOTALL)
    return any(pattern.search(text) for text in texts)


def test_every_message_is_one_that_the_code_can_say():
    texts = templates()
    assert [message for message in messages() if not occurs(message, texts)] == []
    assert len(messages()) > 50


def test_a_message_that_nobody_says_is_found_out():
    assert not occurs("…: no such message in the …", templates())


def test_the_recipe_is_what_its_file_sets():
    values = flatten(load(["webgym"]).model_dump(mode="json"))
    written = {row[1].strip("`"): row[2].strip("`") for row in RECIPE}
    assert len(written) > 50 and {key: json.dumps(values[key]) for key in written} == written


def test_the_recipe_names_all_that_its_file_changes():
    named = {row[1].strip("`") for row in RECIPE}
    before, after = (flatten(settings.model_dump(mode="json")) for settings in (load(), load(["webgym"])))
    elsewhere = {"tasks.train", "tasks.test", "judge.base_url", "judge.api_key_env_var"}
    assert {key for key in after if after[key] != before[key]} <= named | elsewhere


def test_the_thinking_model_stays_one():
    policy = load(["webgym", "webgym-thinking"]).policy_config
    assert (policy.template, policy.thinking) == ("qwen3_vl", True)
    assert policy.base_model.endswith("-Thinking")
    assert policy.max_new_tokens == load(["webgym"]).policy_config.max_new_tokens


@each("file", sorted(shipped_root().glob("*.yaml")))
def test_a_shipped_file_is_named_in_the_pages(file):
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert re.search(rf"-c {file.stem}\b", pages)


def test_the_example_tasks_are_tasks():
    blocks = re.findall(r"^```json\n(.*?)^```$", FORMATS.read_text(), re.DOTALL | re.MULTILINE)
    first, second = (parse_task(line.encode()) for line in blocks[0].splitlines())
    assert first.instruction == second.instruction
    assert (first.reference_answer, first.environment) == (second.reference_answer, second.environment)
    assert second.start_url == "https://shop.example"
    assert second.rubric[0] == "[Group 1: the kettle] It names the kettle."
    assert set(second.extra) == {"domain", "evaluator_reference"}


def test_the_hours_of_a_first_run_are_those_of_its_formulas():
    rows = {row[0]: row[1:] for row in table_rows(ROOT / "docs/first-gpu-hour.md", "## Memory and hours")}
    settings = load(["gpu-host"]).rollout
    rollouts = 3 / 5 * (4 * settings.episodes + 5 * settings.test_episodes)
    for flop, peak, hours in zip(*(rows[name] for name in HOURS), strict=True):
        training = 4 * settings.episodes * 4000 * float(flop) / (0.2 * float(peak.split()[-1]))
        assert f"{(rollouts + training) / 3600:.1f}" == hours
