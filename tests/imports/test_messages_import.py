"""Episodes in chat form: images in each form, rewards, failures, and the published forms of other systems."""

import base64
import codecs
import hashlib
import json
from collections import Counter
from copy import deepcopy
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.imports.test_import_execute import bring
from tests.prepare.buffer import fill
from tests.prepare.exported import exported
from tests.records.builders import SOLVED, new_run, png, trajectory
from webgym_cli.agent.prompt import render_step
from webgym_cli.config.load import load
from webgym_cli.errors import UsageError
from webgym_cli.evaluate.agreement import measure_agreement, read_labels
from webgym_cli.imports.execute import Importer
from webgym_cli.imports.plan import plan_import, require_imported
from webgym_cli.prepare.sft.plan import plan_dataset
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.judgement import environment_verdict
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import PromptSpec
from webgym_cli.store.buffer import scan
from webgym_cli.store.index.query import open_index
from webgym_cli.store.screenshots import ScreenshotStore

FIRST, SECOND = png(1), png(2)
TOOL = {"type": "function", "function": {"name": "click", "parameters": {"type": "object"}}}


def digest(data):
    return hashlib.sha256(data).hexdigest()


def data_url(data):
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def image(url):
    return {"type": "image_url", "image_url": {"url": url}}


def text(words):
    return {"type": "text", "text": words}


def call(x, *, as_text=True):
    arguments = {"x": x}
    function = {"name": "click", "arguments": json.dumps(arguments) if as_text else arguments}
    return {"role": "assistant", "content": f"I click {x}.", "tool_calls": [{"type": "function", "function": function}]}


def episode(first="shots/a.png", second=None, **fields):
    """Return two turns of an agent with a tool."""
    return {
        "messages": [
            {"role": "system", "content": "You operate a browser."},
            {"role": "user", "content": [image(first), text("Buy a lamp.")]},
            call(1),
            {"role": "tool", "content": [text("done"), image(second or data_url(SECOND))]},
            {"role": "assistant", "content": "It is bought."},
        ],
        "tools": [TOOL],
        "reward": 1.0,
        **fields,
    }


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "given"
    (root / "shots").mkdir(parents=True)
    (root / "shots" / "a.png").write_bytes(FIRST)
    (root / f"{digest(FIRST)}.png").write_bytes(FIRST)
    (root / f"{digest(SECOND)}.png").write_bytes(FIRST)  # not what its name says
    return root


def text_turn():
    return {"role": "user", "content": "What does it cost?"}


def write(root, *episodes, name="episodes.jsonl"):
    (root / name).write_text("".join(f"{json.dumps(one)}\n" for one in episodes))
    return root / name


def stored(run):
    return list(scan(run, Split.TRAIN, 0))


@pytest.mark.parametrize(
    "url",
    [
        *("shots/a.png", "file:///gone/given/shots/%61.png", "/gone/shots/a.png", data_url(FIRST)),
        *(f"sha256:{digest(FIRST)}", "shots\\a.png", "C:\\gone\\shots\\a.png"),
    ],
)
def test_images_as_files_data_urls_and_digests(run, folder, url):
    summary, _ = bring(run, write(folder, episode(url)), "messages")
    assert (summary["imported"], summary["solved"], summary["steps"], summary["new_images"]) == (1, 1, 2, 2)
    (trajectory,) = stored(run)
    assert [step.observation.screenshot.sha256 for step in trajectory.steps] == [digest(FIRST), digest(SECOND)]
    assert trajectory.steps[1].sent.images == (digest(FIRST), digest(SECOND))
    assert ScreenshotStore(run.screenshots).get(digest(FIRST)) == FIRST
    assert trajectory.steps[0].action.calls[0].arguments == {"x": 1}
    assert trajectory.steps[1].action.arguments == {"text": "It is bought."}
    assert (trajectory.outcome.reward, trajectory.outcome.stop) == (1.0, Stop.TERMINATED)


@pytest.mark.parametrize("url", ["1/2/3/4/a.png", "./1/2/3/4/a.png", "/gone/given/1/2/3/4/a.png", "../x/1/2/3/4/a.png"])
def test_an_image_may_lie_deep_in_the_folder(run, folder, url):
    deep = folder / "1" / "2" / "3" / "4"
    deep.mkdir(parents=True)
    (deep / "a.png").write_bytes(SECOND)
    (folder / "a.png").write_bytes(FIRST)  # its name alone
    bring(run, write(folder, episode(url)), "messages")
    assert [one.steps[0].observation.screenshot.sha256 for one in stored(run)] == [digest(SECOND)]


def test_the_same_question_about_another_picture_is_another_episode(run, folder):
    for name, data in (("one", FIRST), ("two", SECOND), ("three", SECOND)):
        (folder / name).mkdir()
        (folder / name / "0.png").write_bytes(data)
    path = write(folder, *(episode(f"{name}/0.png") for name in ("one", "two", "three")))
    summary, _ = bring(run, path, "messages")
    assert (summary["imported"], summary["skipped"]) == (2, {"already_imported": 1})


def test_a_reply_trains_under_the_messages_before_it(run, folder):
    bring(run, write(folder, episode()), "messages", prompt=PromptSpec(call_format="hermes"))
    (trajectory,) = stored(run)
    prompt = render_step(trajectory, 1)
    assert [message.role for message in prompt.messages] == ["system", "user", "assistant", "user"]
    assert '"name": "click"' in prompt.messages[0].content
    assert trajectory.steps[0].response in prompt.messages[2].content
    assert sum(message.content.count("<image>") for message in prompt.messages) == len(prompt.images)
    with open_index(run) as index:
        assert plan_dataset(run, load(), index).eligible == 2


def test_prompts_have_no_more_images_than_the_policy_is_sent_and_context_is_no_step(run, folder):
    bring(run, write(folder, episode()), "messages", prompt=PromptSpec(max_images=1))
    (trajectory,) = stored(run)
    assert [step.sent.images for step in trajectory.steps] == [(digest(FIRST),), (digest(SECOND),)]
    assert sum(message.content.count("<image>") for message in trajectory.steps[1].sent.messages) == 1
    given = episode(id="other")
    given["messages"][2]["weight"] = 0
    bring(run, write(folder, given), "messages")
    assert [len(one.steps) for one in stored(run)] == [2, 1]


def test_an_unknown_reward_awaits_a_judge_and_a_failure_has_none(run, folder):
    path = write(folder, episode(reward=None, answer="39"), episode(reward=None, failure="the browser broke"))
    summary, _ = bring(run, path, "messages")
    waiting, failed = stored(run)
    assert (waiting.awaits_judgement, waiting.outcome.answer) == (True, "39")
    assert (failed.outcome.failure, failed.outcome.reward) == (FailureKind.ENVIRONMENT_ERROR, None)
    assert summary["failures"] == {"environment_error": 1}


def test_a_folder_has_its_reward_beside_and_may_begin_with_a_byte_order_mark(run, folder):
    (folder / "messages.json").write_bytes(codecs.BOM_UTF8 + json.dumps(episode()["messages"]).encode())
    (folder / "reward.json").write_text("0.5")
    bring(run, folder, "auto")
    assert [one.outcome.reward for one in stored(run)] == [0.5]


@pytest.mark.parametrize("name", ["episode.json", "episodes.jsonl"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize(("count", "indent"), [(1, 1), (2, None), (2, 1)])
def test_a_file_may_be_one_value_and_begin_with_a_byte_order_mark(run, folder, name, mark, count, indent):
    episodes = [episode(reward=number) for number in range(count)]
    path = folder / name
    path.write_bytes(mark + json.dumps(episodes if count > 1 else episode(), indent=indent).encode())
    assert bring(run, path, "messages")[0]["imported"] == count


def test_columns_that_are_null_and_fields_of_openai_s_lines_are_taken(run, folder):
    nulls = dict.fromkeys(("tools", "reward", "failure", "answer", "id", "task", "start_url", "model", "metadata"))
    given = {"messages": [text_turn(), {"role": "assistant", "content": "39", "weight": None, "tool_calls": None}]}
    summary, _ = bring(run, write(folder, {**given, **nulls}, episode(parallel_tool_calls=False)), "messages")
    assert (summary["imported"], summary["steps"]) == (2, 3)


@pytest.mark.parametrize(
    "fields",
    [
        *({"reasoning_content": "It is cheap."}, {"reasoning": "It is cheap.", "reasoning_content": ""}),
        {"reasoning": "It is cheap.\n", "content": "<think>\nIt is cheap.</think>I click 1."},
    ],
)
def test_reasoning_that_was_split_off_is_in_front_of_its_reply_and_not_in_the_history(run, folder, fields):
    given = episode()
    given["messages"][2] |= fields
    given["messages"][4] = call(2)
    bring(run, write(folder, given), "messages", prompt=PromptSpec(call_format="hermes"))
    (trajectory,) = stored(run)
    assert trajectory.steps[0].response.startswith("<think>\nIt is cheap.</think>I click 1.\n<tool_call>")
    assert trajectory.prompt.thinking
    assert [step.action.calls[0].arguments for step in trajectory.steps] == [{"x": 1}, {"x": 2}]
    history = "".join(message.content for message in trajectory.steps[1].sent.messages)
    assert ("cheap" in history) is ("content" in fields)


def test_what_was_imported_is_not_imported_again(run, folder, tmp_path):
    bring(run, write(folder, episode()), "messages")
    before = [one.id for one in stored(run)]
    summary, _ = bring(run, folder.rename(tmp_path / "moved"), "messages")
    assert (summary["imported"], summary["skipped"]) == (0, {"already_imported": 1})
    assert [one.id for one in stored(run)] == before


USER, *_, LAST = episode()["messages"][1:]
NO_MESSAGES = [
    [{"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}, call(1)],
    [USER, {"role": "assistant", "refusal": "no"}],
    [text_turn(), {"role": "assistant", "content": [text("Look:"), image(data_url(FIRST))]}],
    episode()["messages"][2:],
    [USER] * 2,
    [*episode()["messages"], call(2)],
]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        *(
            (episode(url), "screenshot_missing")
            for url in (
                *("shots/b.png", data_url(b"no image"), "data:image/png;base64,%%%", f"sha256:{digest(SECOND)}"),
                *("A" * 5000, f"sha256:{'b' * 5000}"),
            )
        ),
        *((episode(url), "not_understood") for url in ("../../secret.png", "https://example.org/a.png")),
        *((episode(reward=reward), "not_understood") for reward in ("much", "1.0", True, float("nan"), 1e300)),
        *((episode(messages=messages), "not_understood") for messages in NO_MESSAGES),
        (episode(rewards=1), "not_understood"),
        (episode(id="lamp\ud83d"), "not_understood"),
        (episode(metadata={"canary": "BENCHMARK DATA"}), "not_understood"),
        (episode(metadata=json.loads('{"a": ' * 400 + "1" + "}" * 400)), "not_understood"),
        (episode(reward=1, failure="broke", messages=[]), "not_understood"),
        ([1], "not_understood"),
        (None, "not_understood"),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, str) else None,
)
def test_what_is_no_episode_is_left_out_with_its_place(run, folder, given, reason):
    path = write(folder, episode(), given, episode(reward=0.0))
    # torn: that line, and the last one
    path.write_text(path.read_text().replace("\nnull\n", "\n{\n") + f"\n{json.dumps(episode())[:-9]}")
    summary, _ = bring(run, path, "messages")
    assert (summary["imported"], summary["skipped"]) == (2, Counter([reason, "not_understood"]))
    (example, *_) = summary["examples"][reason]
    assert "line 2" in example and "pydantic" not in example


def test_an_array_has_its_episodes_in_place_of_lines_and_a_damaged_file_beside_others_is_named(run, folder):
    path = folder / "all.json"
    path.write_text(json.dumps([episode(), 7, episode(reward=0.0)], indent=1))
    summary, _ = bring(run, path, "messages")
    assert (summary["imported"], summary["skipped"]) == (2, Counter(["not_understood"]))
    assert "item 2" in summary["examples"]["not_understood"][0]
    path.unlink()
    write(folder, episode(reward=0.5))
    (folder / "other.jsonl").write_bytes(b"\xe9\n")
    (folder / "rows.jsonl").write_text('{"a": 1}\n')  # of something else
    summary, _ = bring(run, folder, "messages")
    assert (summary["imported"], summary["skipped"]) == (1, Counter(["not_understood"]))
    assert "other.jsonl" in summary["examples"]["not_understood"][0]
    (folder / "NAMED.JSONL").write_text(f"{{\n{json.dumps(episode(reward=0.25))}")
    summary, _ = bring(run, folder / "NAMED.JSONL", "auto")
    assert (summary["imported"], summary["skipped"]) == (1, Counter(["not_understood"]))
    (folder / "utf16.jsonl").write_text(
        "".join(f"\n{json.dumps(episode(reward=(n + 1) / 16))}" for n in range(3)), "utf-16"
    )
    summary, _ = bring(run, folder / "utf16.jsonl", "auto")
    assert (summary["imported"], summary["skipped"]) == (3, {})
    with pytest.raises(UsageError):
        bring(run, write(folder, {"trace": 1}), "messages")


def openwebrl(turn, last, rollout=0):
    """Return a line of OpenWebRL: a turn, with all messages until then and the image that was new."""
    mark = "<|vision_start|><|image_pad|><|vision_end|>"
    click = '<tool_call>\n{"name": "click", "arguments": {"point_2d": [1, 2]}}\n</tool_call>'
    messages = [{"role": "system", "content": "You operate."}, {"role": "user", "content": f"{mark}Buy a lamp."}]
    for _ in range(turn):
        messages += [{"role": "assistant", "content": click}, {"role": "tool", "content": f"done{mark}"}]
    facts = {"intent": "Buy a lamp.", "start_url": "https://shop.test/", "task_id": "7", "turn_index": turn}
    facts |= {"is_last_turn": last, "images": [data_url((FIRST, SECOND)[turn])], "messages": messages}
    prompt = f"# Tools\n<tools>\n{json.dumps(TOOL)}\n</tools>"
    given = {"rollout_idx": rollout, "group_index": 0, "index": None, "prompt": prompt, "response": click}
    return {**given, "reward": 1.0, "status": "completed", "metadata": facts}


def test_turns_of_openwebrl_are_joined_and_task_ids_may_be_numbers(run, folder):
    lines = [openwebrl(0, False), openwebrl(1, True), openwebrl(0, True, rollout=1)]
    torn = write(folder, *lines[:2])
    torn.write_text(torn.read_text()[:-9])
    assert bring(run, torn, "auto")[0]["skipped"] == {"not_understood": 1}  # nothing half imported
    summary, _ = bring(run, write(folder, *lines, {"metadata": 7}), "auto")
    assert (summary["format"], summary["imported"], summary["skipped"]) == ("openwebrl", 2, {"not_understood": 1})
    long, short = stored(run)
    assert [step.action.calls[0].name for step in long.steps] == ["click", "click"]
    assert long.steps[1].sent.images == (digest(FIRST), digest(SECOND))
    assert (long.task.id, long.task.start_url, len(short.steps)) == ("7", "https://shop.test/", 1)
    no_images = [deepcopy(line) for line in lines[:2]]
    for line in no_images:
        line["metadata"]["images"] = []
        for message in line["metadata"]["messages"]:
            message["content"] = message["content"].replace("<|vision_start|><|image_pad|><|vision_end|>", "")
    torn = write(folder, *no_images, lines[2])
    torn.write_text(torn.read_text().replace('"is_last_turn": true', '"is_last_turn: true', 1))
    summary, _ = bring(run, torn, "openwebrl")
    assert (summary["imported"], summary["skipped"]) == (0, {"not_understood": 1, "already_imported": 1})
    first, second = openwebrl(0, True), openwebrl(0, True)
    first["metadata"]["task_id"], second["metadata"] = 1, second["metadata"] | {"task_id": 2, "intent": "Buy a desk."}
    summary, _ = bring(run, write(folder, first, second), "auto")
    assert (summary["imported"], summary["skipped"]) == (2, {})
    assert [one.instruction for one in stored(run)[2:]] == ["Buy a lamp.", "Buy a desk."]


def test_a_folder_of_fara(run, folder):
    at = folder / "task_7"
    at.mkdir()
    actions = [
        {"thoughts": "The lamp.", "action": "left_click", "coordinate": [10, 20]},
        {"thoughts": "Done.", "action": "terminate", "status": "success"},
    ]
    write(at, *({"source": "agent", "arguments": one} for one in actions), {"message": "loaded"}, name="web_surfer.log")
    (at / "task_data.json").write_text(json.dumps({"confirmed_task": "Buy a lamp.", "init_url": "https://shop.test/"}))
    (at / "7_final_answer.json").write_text(json.dumps({"final_answer": "bought", "is_aborted": False}))
    for number, data in enumerate((FIRST, SECOND)):
        (at / f"screenshot{number}.png").write_bytes(data)
    summary, _ = bring(run, folder, "auto")
    (trajectory,) = stored(run)
    assert (summary["format"], trajectory.awaits_judgement, trajectory.outcome.answer) == ("fara", True, "bought")
    assert trajectory.steps[0].action.calls[0].arguments == {"action": "left_click", "coordinate": [10, 20]}
    assert trajectory.instruction == "Buy a lamp."
    assert trajectory.steps[1].observation.screenshot.sha256 == digest(SECOND)


FOLDERS = [("messages.json", "messages"), ("task_data.json", "fara"), ("web_surfer.log", "fara")]


@pytest.mark.parametrize(("name", "format_"), FOLDERS)
def test_a_damaged_file_of_a_folder_leaves_the_others(run, folder, name, format_):
    write(folder, {"arguments": {"action": "wait"}}, name="web_surfer.log")
    (folder / name).write_text("{")
    plan = plan_import(run, format_, folder)
    with pytest.raises(UsageError, match=r"not? JSON"):
        require_imported(Importer(plan, run, lambda event: None).execute(), plan)


def test_a_file_of_molmoweb(run, folder):
    steps = {
        "1": {"screenshot": "s1.png", "action": {"action_str": "goto(url='https://shop.test/')"}},
        "2": {
            "screenshot": "s2.png",
            "action": {"action_str": "mouse_click(x=12.5, y=50.0)", "action_description": "c"},
        },
    }
    row = {"sample_id": "ab", "instruction": json.dumps({"high_level": "Buy a lamp."}), "trajectory": json.dumps(steps)}
    row |= {"images": [{"bytes": FIRST, "path": "s1.png"}, {"bytes": SECOND, "path": "s2.png"}]}
    row |= {"image_paths": ["s1.png", "s2.png"]}
    lacking = row | {"sample_id": "cd", "images": [], "image_paths": []}
    pq.write_table(pa.Table.from_pylist([row, lacking, row | {"trajectory": "{"}]), folder / "train-0.parquet")
    (folder / "train-1.parquet").write_bytes((folder / "train-0.parquet").read_bytes()[:-20])
    summary, _ = bring(run, folder, "auto")
    assert (summary["format"], summary["imported"]) == ("molmoweb", 1)
    assert summary["skipped"] == {"screenshot_missing": 1, "not_understood": 1, "unreadable_file": 1}
    (trajectory,) = stored(run)
    assert trajectory.steps[1].action.calls[0].arguments == {"x": 12.5, "y": 50.0}
    assert [step.observation.screenshot.sha256 for step in trajectory.steps] == [digest(FIRST), digest(SECOND)]


@pytest.mark.parametrize("picture", [{"bytes": FIRST, "path": None}, FIRST], ids=["a struct", "plain bytes"])
def test_a_file_of_cuaverifierbench_awaits_the_judge_that_is_compared_with_people(run, folder, picture):
    log = [{"source": "agent", "arguments": {"thoughts": "The lamp.", "action": "left_click"}}, {"message": "loaded"}]
    row = {"task_id": "t_1", "instruction": "Buy a lamp.", "init_url": "https://shop.test/", "final_answer": "bought"}
    row |= {"web_surfer_log": "\n".join(map(json.dumps, log)), "is_aborted": False, "majority_human_outcome_vote": 1}
    row |= {"screenshots": [picture]}
    silent = row | {"task_id": "t_2", "final_answer": "<no_answer>", "is_aborted": True}
    lacking = row | {"task_id": "t_3", "screenshots": []}
    pq.write_table(pa.Table.from_pylist([row, silent, lacking]), folder / "internal-0.parquet")
    summary, _ = bring(run, folder / "internal-0.parquet", "auto")
    assert (summary["format"], summary["skipped"]) == ("cuaverifierbench", {"screenshot_missing": 1})
    assert [(one.task.id, one.outcome.answer) for one in stored(run)] == [("t_1", "bought"), ("t_2", None)]
    assert all(one.awaits_judgement and len(one.steps) == 1 for one in stored(run))
    assert [label.success for label in read_labels(folder / "internal-0.parquet")] == [True] * 3


def agentrewardbench(folder, agent, actions, reward, error=None):
    """Write an episode as AgentRewardBench publishes them, and its annotations beside."""
    shots = Path("screenshots", "webarena", agent, "webarena.7")
    (folder / shots).mkdir(parents=True)
    steps = []
    for number, action in enumerate(actions):
        shot = shots / f"screenshot_step_{number}.png"
        (folder / shot).write_bytes((FIRST, SECOND)[number % 2])
        step = {"num": number, "reasoning": f"r{number}", "action": action, "url": f"http://shop.test/{number}"}
        steps.append(step | {"axtree": f"RootWebArea {number}", "screenshot_path": f"trajectories/{shot}"})
    value = {"benchmark": "webarena", "agent": agent, "model": "m", "valid": True, "goal": "Find the price.\n"}
    file = folder / "cleaned" / "webarena" / agent / f"{agent}_on_webarena" / "webarena.7.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(value | {"summary_info": {"cum_reward": reward, "err_msg": error}, "steps": steps}))


def test_the_trajectories_of_agentrewardbench_are_compared_with_its_annotations(run, folder):
    agentrewardbench(folder, "agent-a", ["click('a51', button='left')", "send_msg_to_user('12 EUR')", None], 0.0)
    agentrewardbench(folder, "agent-b", ["fill('3', 'lamp')\nclick('4')", "report_infeasible('no shop')"], 1.0)
    agentrewardbench(folder, "agent-c", ["noop()"], 0.0, "Timeout")
    agentrewardbench(folder, "agent-d", ["noop()"], None)
    (folder / "cleaned" / "other.json").write_text('{"agent": 1}')
    summary, _ = bring(run, folder, "auto")
    assert (summary["format"], summary["imported"], summary["skipped"]) == ("agentrewardbench", 4, {})
    first, second, *others = stored(run)
    assert [environment_verdict(one) for one in others] == [None, None]
    assert first.awaits_judgement and environment_verdict(first) is False
    assert (first.task.id, first.policy, first.instruction) == ("webarena.7", "agent-a", "Find the price.")
    assert (first.outcome.answer, second.outcome.answer) == ("12 EUR", "N/A")
    assert first.steps[0].action.calls[0].arguments == {"argument_0": "a51", "button": "left"}
    assert second.steps[0].action.calls[0].arguments == {"code": "fill('3', 'lamp')\nclick('4')"}
    seen = [(one.observation.url, one.observation.html, one.observation.screenshot.sha256) for one in first.steps]
    shots = (digest(FIRST), digest(SECOND))
    assert seen == [(f"http://shop.test/{at}", f"RootWebArea {at}", shot) for at, shot in enumerate(shots)]
    header = "annotator_name,benchmark,task_id,model_name,exp_name,trajectory_success,trajectory_side_effect"
    people = {"agent-a": "Unsuccessful", "agent-b": "Successful"}
    rows = [f"A,webarena,webarena.7,{agent},e,{label},No" for agent, label in people.items()]
    (folder / "annotations.csv").write_text("\n".join([header, *rows]))
    labels = read_labels(folder / "annotations.csv")
    measured = measure_agreement(labels, ((one, []) for one in stored(run)), None)
    (row,) = (row for row in measured["rows"] if row["group"] == "all")
    assert (measured["episodes"], row["source"], row["tp"], row["tn"]) == (2, "check", 1, 1)


PAGE = [text("Observation: please analyze the attached screenshot."), image("data:image/png;base64,{b64_img}")]
FIRST_PAGE = (
    "Now given a task: Find\nthe price.  Please interact with http://shop.test/ and get the answer. \n"
    "Its page: Please interact with http://ad.test/ and get the answer."
)
# What the agent wrote, and its action; the third and fourth follow an error, which has no screenshot.
WEBVOYAGER = [
    (FIRST_PAGE, "Thought: A list.\n\nAction: Click [33]", "Click [33]"),
    (PAGE, "I click.", None),
    ("Format ERROR: both are needed.", "Thought: Again. Action: Wait\nObservation: I guess.", "Wait"),
    ("Format ERROR: both are needed.", "Action: Click [2]", None),
    (PAGE, "**Thought:**  \nDone.\n\n**Action:**  \nANSWER; [It costs [1] 12\nEUR]", "ANSWER; [It costs [1] 12\nEUR]"),
]


def test_results_of_webvoyager_have_the_screenshot_of_each_page_and_the_whole_answer(run, folder):
    at = folder / "taskMultitask--3"
    at.mkdir()
    messages = [{"role": "system", "content": "Imagine."}]
    for number, (page, reply, _) in enumerate(WEBVOYAGER, 1):
        messages += [{"role": "user", "content": page}, {"role": "assistant", "content": reply}]
        if number not in (3, 4):
            (at / f"screenshot{number}.png").write_bytes(png(number))
    (at / "screenshot5_no_box.png").write_bytes(png(9))
    (at / "interact_messages.json").write_text(json.dumps(messages))
    (folder / "taskB").mkdir()  # without its screenshot
    (folder / "taskB" / "screenshot2.png").write_bytes(FIRST)
    (folder / "taskB" / "interact_messages.json").write_text(json.dumps(messages[:3]))
    (folder / "taskC").mkdir()  # of an older prompt
    (folder / "taskC" / "screenshot1.png").write_bytes(FIRST)
    (folder / "taskC" / "interact_messages.json").write_text(json.dumps(messages[3:]))
    (folder / "taskD").mkdir()
    (folder / "taskD" / "screenshot1.png").write_bytes(FIRST)
    (folder / "taskD" / "interact_messages.json").write_text("7")
    summary, _ = bring(run, folder, "auto")
    skipped = {"screenshot_missing": 1, "not_understood": 2}
    assert (summary["format"], summary["imported"], summary["skipped"]) == ("webvoyager", 1, skipped)
    assert "a message is missing" in summary["examples"]["not_understood"][1]
    (one,) = scan(run, Split.TEST, 0)
    assert (one.task.id, one.instruction, one.task.start_url) == (
        "Multitask--3",
        "Find\nthe price.",
        "http://shop.test/",
    )
    assert one.awaits_judgement and one.outcome.answer == "It costs [1] 12\nEUR"
    assert one.task.extra["benchmark"] == "webvoyager"
    assert [step.response for step in one.steps] == [reply for _, reply, _ in WEBVOYAGER]
    assert [step.action and step.action.text for step in one.steps] == [action for *_, action in WEBVOYAGER]
    assert [step.parse_error is None for step in one.steps] == [action is not None for *_, action in WEBVOYAGER]
    assert [step.observation.screenshot.sha256 for step in one.steps] == [digest(png(at)) for at in (1, 2, 2, 2, 5)]
    assert [len(step.sent.images) for step in one.steps] == [1, 2, 2, 2, 3]
    assert one.answering == one.steps[-1]
    (missing,) = summary["examples"]["screenshot_missing"]
    assert missing == f"{folder / 'taskB'}: {folder / 'taskB' / 'screenshot1.png'}: not there"
    online_mind2web(folder / "a", {"0.png": FIRST}, action_history=["x"])
    with pytest.raises(UsageError, match="nothing"):
        plan_import(run, "webvoyager", at / "screenshot1.png")
    with pytest.raises(UsageError, match="webvoyager and online-mind2web are there"):
        plan_import(run, "auto", folder)
    assert plan_import(run, "online-mind2web", folder).sources == (folder / "a",)


@pytest.mark.parametrize(
    ("last", "answer"),
    [
        ("Thought: x\nAction: **ANSWER; [42]**", "42"),
        ("Thought: x\nAction: ANSWER; [42]\n\nHope it helps.", "42"),
        ("Thought: x\nAction: ANSWER; [42]\nObservation: done", "42"),
        ("Thought: x\nAction: ANSWER; 42\nObservation: done", "42"),
        ("Thought: x\nAction: ANSWER; [42][43]", "[42][43]"),
        ("Thought: x\nAction: ANSWER; [42]\n[43]", "[42]\n[43]"),
        ("Thought: x\nAction: ANSWER; [Plan. Action: none]", "Plan. Action: none"),
        ("Thought: x\nAction: ANSWER; 42\nThought: done", "42"),
        ("Thought: x\nAction: ANSWER; 42\nAction: Wait", "42"),
        ("Thought: x\nAction: ANSWER;\n[ 42 ].", "42"),
        ("Thought: x\nAction: ANSWER;  \nParis", "Paris"),
        ("Thought: x\nAction: ANSWER Paris", "Paris"),
        ("Thought: x\nAction: ANSWER; [1] x", "[1] x"),
        ("Thought: x\nAction: ANSWER; x [1]", "x [1]"),
        ("Thought: not ANSWER; [41]\nAction: ANSWER; [42]", "42"),
        ("Thought: ANSWER; [41]?\nAction: Click [1]", None),
        ("Thought: x\nAction: ANSWER; **42**", "42"),
        ("Thought: x\nAction: ANSWER; []", None),
    ],
)
def test_the_answer_of_a_result_of_webvoyager_is_what_its_brackets_hold(run, folder, last, answer):
    messages = [{"role": "user", "content": FIRST_PAGE}, {"role": "assistant", "content": last}]
    (folder / "screenshot1.png").write_bytes(FIRST)
    (folder / "interact_messages.json").write_text(json.dumps(messages))
    bring(run, folder / "interact_messages.json", "webvoyager")
    assert [one.outcome.answer for one in scan(run, Split.TEST, 0)] == [answer]


@pytest.mark.parametrize("format_", ["webvoyager", "online-mind2web"])
def test_exported_results_are_imported_with_their_steps_and_answer(run, tmp_path, format_):
    other, task = new_run(tmp_path / "other"), Task(id="a", start_url="http://a/")
    answered = SOLVED.model_copy(update={"stop": Stop.STEP_LIMIT, "answer": "12 EUR"})
    fill(other, trajectory(0, steps=2, outcome=answered, task=task, instruction="Find the price."))
    exported(other, tmp_path / "out", format=format_)
    bring(run, tmp_path / "out", format_)
    (one,) = scan(run, Split.TEST, 0)
    assert (one.task.id, one.instruction, one.outcome.answer) == ("a", "Find the price.", "12 EUR")
    assert len(one.steps) == {"webvoyager": 2, "online-mind2web": 3}[format_]


def test_pictures_beside_hold_those_of_several_episodes(run, folder, tmp_path):
    for name, data in (("taska", FIRST), ("taskb", SECOND)):
        messages = [{"role": "user", "content": FIRST_PAGE}, {"role": "assistant", "content": "Action: Wait"}]
        for root in (folder, tmp_path / "images"):
            (root / name).mkdir(parents=True)
            (root / name / "screenshot1.png").write_bytes(data if root != folder else png(3))
        (folder / name / "interact_messages.json").write_text(json.dumps(messages))
    bring(run, folder, "webvoyager", images=tmp_path / "images")
    seen = [one.steps[0].observation.screenshot.sha256 for one in scan(run, Split.TEST, 0)]
    assert seen == [digest(FIRST), digest(SECOND)]


def online_mind2web(at, shots, **fields):
    """Write a result as Online-Mind2Web's scorer reads it."""
    (at / "trajectory").mkdir(parents=True)
    for name, data in shots.items():
        (at / "trajectory" / name).write_bytes(data)
    (at / "result.json").write_text(json.dumps({"task": "Find the price.", "task_id": at.name, **fields}))


@pytest.mark.parametrize(
    ("numbers", "places"),
    [
        ((1, 2, 3), [0, 1, 2, 2]),
        ((1, 2, 4), [0, 1, 1, 2]),  # none between the actions of one reply
        ((0, 3), [0, 0, 0, 1]),
        ((1700000001, 1700000007), [0, 1, 1, 1]),
    ],
)
def test_the_number_of_a_screenshot_tells_the_step_of_online_mind2web(run, folder, numbers, places):
    shots = {f"{number}_full_screenshot.png": png(place) for place, number in enumerate(numbers)}
    online_mind2web(folder / "a", shots, action_history=["a", "b", "c"], final_result_response="12 EUR")
    bring(run, folder, "online-mind2web")
    (one,) = scan(run, Split.TEST, 0)
    assert [step.observation.screenshot.sha256 for step in one.steps] == [digest(png(place)) for place in places]


def test_results_of_online_mind2web_of_both_schemas(run, folder):
    schema = {"schema_version": "online-mind2web-v2", "reference_length": 4, "agent_final_answer": "12 EUR"}
    click = {"step": 0, "screenshot": "0000.png", "url": "http://a/", "action": "lamp -> CLICK", "thought": "A lamp."}
    end = {"step": 1, "screenshot": "0001.png", "url": "http://a/1", "action": "TASK_COMPLETE -> ANSWER: 12 EUR"}
    two = {"0000.png": FIRST, "0001.png": SECOND}
    online_mind2web(folder / "a", two, **schema, action_history=[click, end], final_result_response="13 EUR")
    flat = {"action_history": ["lamp -> CLICK", "field -> TYPE: x"], "thoughts": ["A lamp."]}
    three = {"10_shot.png": png(3), "2_shot.png": SECOND, "0_shot.png": FIRST, "notes.txt": b""}
    online_mind2web(folder / "b", three, **flat, final_result_response="12 EUR", website="http://a/2")
    online_mind2web(folder / "c", {"0.png": FIRST}, **flat, final_result_response="")
    online_mind2web(folder / "d", {"0.txt": b""}, **flat)
    online_mind2web(folder / "e", {"0000.png": FIRST}, **schema, action_history=[click, end])
    online_mind2web(folder / "f", two, **schema, action_history=[click | {"screenshot": "../../a/0000.png"}])
    online_mind2web(folder / "g", {"0.png": FIRST}, **flat, task=" ")
    bare = {"screenshot": "0000.png", "action": {"click": 7}}
    online_mind2web(folder / "h", two, **schema, action_history=[bare, {"action": "back"}, end])
    online_mind2web(folder / "i", {"0.png": FIRST}, **flat, final_result_response=["12", "EUR"], task_id="")
    late = {"end.PNG": SECOND, "a.png": png(3), "0.png": FIRST, "1.png": png(4), "2.png": png(5)}
    urls = {"start_url": "http://g/", "website": "http://h/", "task_id": "own"}
    answers = {"agent_final_answer": "  ", "final_result_response": " 7 "}
    online_mind2web(folder / "j", late, action_history=[{"click": 1}, "\ud83d" + "x" * 3000, []], **urls, **answers)
    (folder / "result.json").write_text("{}")  # of another program
    summary, _ = bring(run, folder, "auto")
    skipped = {"screenshot_missing": 2, "not_understood": 2}
    assert (summary["format"], summary["imported"], summary["skipped"]) == ("online-mind2web", 6, skipped)
    first, second, third, bare, listed, late = scan(run, Split.TEST, 0)
    assert (late.task.id, late.task.start_url, late.outcome.answer) == ("own", "http://g/", "7")
    acts = ['{"click": 1}', "?" + "x" * 1999, None, None, "ANSWER; 7"]
    assert [step.action and step.action.text for step in late.steps] == acts
    order = [digest(data) for data in (png(3), SECOND, FIRST, png(4), png(5))]
    assert [step.observation.screenshot.sha256 for step in late.steps] == order
    assert late.task.extra["benchmark"] == "online-mind2web"
    assert [step.response for step in bare.steps[:2]] == ['Action: {"click": 7}', "Action: back"]
    assert [len(step.sent.images) for step in bare.steps] == [1, 1, 2]
    assert (listed.task.id, listed.outcome.answer, len(listed.steps)) == ("i", '["12", "EUR"]', 3)
    assert (first.task.id, first.task.start_url, first.task.extra["reference_length"]) == ("a", "http://a/", 4)
    assert (second.task.start_url, third.task.start_url) == ("http://a/2", "")
    assert [one.observation.url for one in first.steps] == ["http://a/", "http://a/1"]
    assert "".join(message.content for message in first.steps[1].sent.messages).count("Find the price.") == 1
    acts = ["lamp -> CLICK", "field -> TYPE: x"]
    known = [
        (first, "12 EUR", [acts[0], end["action"]], (FIRST, SECOND)),
        (second, "12 EUR", [*acts, "ANSWER; 12 EUR"], (FIRST, SECOND, png(3))),
        (third, None, acts, (FIRST, FIRST)),
    ]
    for one, answer, actions, shots in known:
        assert one.awaits_judgement and one.outcome.answer == answer
        assert one.steps[0].response == "Thought: A lamp.\nAction: lamp -> CLICK"
        assert [step.action.text for step in one.steps] == actions
        assert [step.observation.screenshot.sha256 for step in one.steps] == [digest(data) for data in shots]
