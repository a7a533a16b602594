import json

import pytest

from tests.app import invoke

MINE = '''
from webgym_cli.tools import tool

@tool
def look_up(word: str) -> str:
    """Look a word up.

    Args:
        word: In English.
    """
    return word
'''


def run(*args):
    return invoke("tools", "list", *args)


def test_the_list_names_tools_and_rewards_and_as_json_what_the_policy_is_told_or_the_arguments():
    result = run()
    assert result.exit_code == 0
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in result.stdout.splitlines()}
    assert {"calculator", "python", "answer", "math_reward_string_equal", "qa_f1_reward"} <= rows.keys()
    assert (rows["calculator"][:2], rows["format_reward"][0]) == (["tool", "built in"], "reward")
    rows = {row["name"]: row for row in map(json.loads, run("--json").stdout.splitlines())}
    function = rows["calculator"]["schema"]["function"]
    assert function["parameters"]["properties"]["expression"]["type"] == "string"
    assert rows["answer"]["terminal"]
    assert rows["math_equal_reward"]["required"] == ["final_response", "answer"]


def test_tools_of_the_settings_are_listed(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    result = run("--json", "-s", f'agent.tools=["{path}:look_up"]')
    (row,) = (row for row in map(json.loads, result.stdout.splitlines()) if row["origin"] == "settings")
    assert row["description"] == "Look a word up."
    assert row["schema"]["function"]["parameters"]["properties"]["word"]["description"] == "In English."


@pytest.mark.parametrize("args", [[], ["--json"]])
def test_what_cannot_be_loaded_is_shown_and_is_an_error(tmp_path, args):
    (tmp_path / "mine.py").write_text("1/0")
    result = run(*args, "-s", f'agent.tools=["{tmp_path}/mine.py:look_up"]')
    assert result.exit_code != 0
    assert "ZeroDivisionError" in result.stdout and "calculator" in result.stdout
