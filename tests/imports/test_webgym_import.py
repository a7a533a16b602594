"""WebGym's files, from their classes' pickles to our records."""

import gzip
import json

import pytest

from tests.imports.foreign import (
    CALL,
    IN_PROGRESS,
    REFUTED,
    SUCCEEDED,
    TASK,
    pickled,
    torch_archive,
    webgym,
    webgym_episode,
    webgym_file,
    webgym_pictures,
    webgym_step,
)
from webgym_cli.agent.forms.tools import render_web_action
from webgym_cli.imports.pickle_stubs import PickleRefused
from webgym_cli.imports.source import ImportedEpisode, SkipReason
from webgym_cli.imports.webgym import WEBGYM, find, read
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.failure import FailureKind, Stop
from webgym_cli.records.task import Split
from webgym_cli.records.trajectory import ParseErrorKind

ONE = "task_0000_ab"


def only(root, episode, **metadata):
    """Return what is made of a single episode."""
    (result,) = read(webgym_file(root, [episode], **metadata), None)
    return result


def test_an_episode_becomes_ours(tmp_path):
    webgym_pictures(tmp_path, ONE)
    trajectory = only(tmp_path, webgym_episode())
    assert isinstance(trajectory, ImportedEpisode)
    assert (trajectory.task.instruction, trajectory.task.start_url) == (TASK["task_name"], TASK["website"])
    assert (trajectory.task.rubric, trajectory.task.reference_answer) == (tuple(TASK["evaluator_reference"]), "1632")
    assert (trajectory.task.id, trajectory.task.environment, trajectory.task.difficulty) == ("7", "web", 2)
    assert trajectory.task.extra == {"domain": "Art", "subdomain": "Museums"}
    assert (trajectory.policy, trajectory.split) == ("qwen", Split.TRAIN)
    assert trajectory.started_at == "2026-01-02T03:04:05.000+00:00"
    first, last = trajectory.steps
    assert first.picture == tmp_path / "images" / ONE / "step_000.png"
    assert (first.url, first.title, first.prompt) == ("https://museum.example/0", "Page 0", "[0]")
    assert (first.response, first.action) == (CALL, Action(name=ActionName.CLICK, coordinate=(500, 250)))
    assert (first.page_changed, last.page_changed) == (False, None)
    assert (trajectory.outcome.reward, trajectory.outcome.stop) == (None, Stop.ANSWERED)
    assert (trajectory.outcome.answer, trajectory.prompt.version) == ("1632", "webgym_vanilla")
    assert trajectory.prompt.interaction_mode is InteractionMode.COORDINATES


def test_its_judges_words_become_a_judgement(tmp_path):
    verdict = only(tmp_path, webgym_episode()).verdict
    assert (verdict.success, verdict.models, verdict.key_points) == (True, {"verdict": "gpt"}, (1,))
    assert [fact.question for fact in verdict.facts] == TASK["evaluator_reference"]
    assert verdict.claims.passed and all(fact.passed for fact in verdict.facts)
    assert (verdict.reference.question, verdict.reference.passed) == ("1632", True)
    refuted = only(tmp_path, webgym_episode(reward=REFUTED)).verdict
    assert (refuted.success, refuted.claims.passed, refuted.reference) == (False, True, None)
    assert [(fact.question, fact.passed) for fact in refuted.facts] == [("the year is named", False)]
    assert refuted.facts[0].reason == "Not there.\nVerdict:\nNOT SUCCESS"


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({"reward": 0, "is_blocked": True}, FailureKind.SITE_BLOCKED),
        ({"reward": 0, "evaluation": "Async evaluation failed: 429"}, FailureKind.JUDGE_FAILED),
        ({"reward": 0, "evaluation": "Reward calculation failed: x"}, FailureKind.JUDGE_FAILED),
        ({"reward": 0, "evaluation": ["[Criterion B - Anti-Hallucination] Error: timeout"]}, FailureKind.JUDGE_FAILED),
        (IN_PROGRESS, FailureKind.CANCELLED),
        ({**IN_PROGRESS, "reward": -1, "evaluation": "Evaluation in progress..."}, None),  # it never ended
    ],
)
def test_what_broke_is_a_failure_and_no_reward_of_0(tmp_path, changes, failure):
    reward = changes if "submit" in changes else {**SUCCEEDED, **changes}
    trajectory = only(tmp_path, webgym_episode(reward=reward))
    assert (trajectory.outcome.failure, trajectory.outcome.reward, trajectory.verdict) == (failure, None, None)


def test_an_unanswered_task_is_no_success_and_no_failure(tmp_path):
    reward = {**IN_PROGRESS, "evaluation": "Task incomplete - no answer provided"}
    trajectory = only(tmp_path, [webgym_step(ONE, 0, CALL, reward)])
    assert (trajectory.verdict.success, trajectory.outcome.failure) == (False, None)
    assert trajectory.outcome.stop == Stop.STEP_LIMIT


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        ("TIMEOUT", FailureKind.EPISODE_TIMEOUT),
        ("PROCESS_KILLED", FailureKind.PAGE_TIMEOUT),
        ("POOL_FAILURE", FailureKind.BROWSER_CRASHED),
        ("GRACE_PERIOD_INCOMPLETE", FailureKind.CANCELLED),
        ("ERROR", FailureKind.ENVIRONMENT_ERROR),
    ],
)
def test_a_stand_in_for_an_error_is_that_failure(tmp_path, kind, failure):
    step = webgym_step(
        ONE, 0, f"Task failed due to {kind}", IN_PROGRESS, key="error", error_type=kind, error_message="x"
    )
    trajectory = only(tmp_path, [step])
    assert (trajectory.outcome.failure, trajectory.outcome.failure_detail, trajectory.steps) == (failure, "x", ())


def test_an_error_after_some_steps_keeps_them(tmp_path):
    broken = webgym_step(ONE, 1, "Task failed", IN_PROGRESS, key="invalid_step", arguments={"error": "no server"})
    trajectory = only(tmp_path, [webgym_step(ONE, 0, CALL, IN_PROGRESS), broken])
    assert (len(trajectory.steps), trajectory.lost_steps, trajectory.outcome.failure_detail) == (1, 1, "no server")


@pytest.mark.parametrize("missing", ["observation", "response", "action"])
@pytest.mark.parametrize("number", [0, 1])
def test_an_episode_with_a_step_that_was_never_carried_out_is_left_out(tmp_path, missing, number):
    steps = webgym_episode()
    steps[number][missing] = None
    trajectory = only(tmp_path, steps)
    assert (trajectory.why, f"step {number} has no {missing}" in trajectory.detail) == (SkipReason.UNFINISHED, True)


def sent(*parts, role="user"):
    shown = [
        {"type": "image_url", "image_url": {"url": f"file:///gone/images/{ONE}/step_{part:03d}.png"}}
        if isinstance(part, int)
        else {"type": "text", "text": part}
        for part in parts
    ]
    return {"role": role, "content": shown}


def with_prompts(*prompts, raw=CALL):
    """Return an episode whose steps kept these prompts."""
    steps = webgym_episode()
    for step, prompt in zip(steps, prompts, strict=True):
        step["response"]["fields"]["raw_prompt"] = json.dumps(prompt, indent=2)
    steps[0]["response"]["fields"]["raw_response"] = raw
    return steps


def test_replies_keep_the_prompt_that_they_were_given_to(tmp_path):
    system = {"role": "system", "content": "Write Action: Type [x, y] [text]. <image>"}
    first = [system, sent(0, "Task: when?")]
    second = [*first, sent("I click.", role="assistant"), sent(1)]
    raw = "Action: Type [10, 20] [red]"
    steps = with_prompts(first, second, raw=raw)
    steps[0]["action"]["fields"]["action"] = {"key": "type", "arguments": {"coordinates": [10, 20], "text": "red"}}
    trajectory = only(tmp_path, steps)
    assert [message.role for message in trajectory.steps[1].sent.messages] == ["system", "user", "assistant", "user"]
    assert trajectory.steps[1].sent.messages[1].content == "<image>Task: when?"
    assert trajectory.steps[1].sent.messages[0].content.endswith("&lt;image&gt;")
    first, second = (step.picture for step in trajectory.steps)
    assert (trajectory.steps[0].sent.images, trajectory.steps[1].sent.images) == ((first,), (first, second))
    # their prompt asks for no call of ours, so none is appended
    assert (trajectory.steps[0].response, trajectory.steps[0].action.text) == (raw, "red")


@pytest.mark.parametrize(
    "prompt", [[], {}, [{"role": "user"}], [sent(7)], [sent("x", role="tool")], [sent("x", role="assistant")]]
)
def test_a_prompt_of_another_form_is_not_taken_over(tmp_path, prompt):
    trajectory = only(tmp_path, with_prompts(prompt, [sent(1)]))
    assert (trajectory.steps[0].sent, trajectory.steps[1].sent.images) == (None, (trajectory.steps[1].picture,))


def test_a_response_without_a_call_gets_the_call_of_their_action_and_what_they_guessed_is_not_taken_over(tmp_path):
    raw = "Action: Type [10, 20] [red]"
    given = [
        webgym_step(ONE, 0, raw, SUCCEEDED, key="type", arguments={"coordinates": [10, 20], "text": "red"}),
        webgym_step(ONE, 1, "I don't know", SUCCEEDED, key="wait", arguments={"time": 2.0}),
        webgym_step(ONE, 2, CALL.replace("[500, 250]", "[]"), SUCCEEDED, arguments={"coordinates": [500, 500]}),
    ]
    typed, silent, broken = only(tmp_path, given).steps
    assert typed.action == Action(name=ActionName.TYPE, coordinate=(10, 20), text="red", submit=True)
    assert typed.response.startswith(f"{raw}\n<tool_call>")
    assert (silent.response, silent.action, silent.parse_error) == ("I don't know", None, ParseErrorKind.NO_TOOL_CALL)
    assert (broken.action, broken.parse_error) == (None, ParseErrorKind.INVALID_ARGUMENTS)


def test_marks_and_memory_are_told_from_the_responses(tmp_path):
    call = render_web_action(Action(name=ActionName.CLICK, element_id=3), InteractionMode.SET_OF_MARKS)
    trajectory = only(tmp_path, [webgym_step(ONE, 0, f"Memory: {{}}\nProgress: {{}}\n{call}", SUCCEEDED)])
    assert trajectory.prompt.interaction_mode is InteractionMode.SET_OF_MARKS
    assert trajectory.prompt.version == "webgym"
    assert trajectory.steps[0].action == Action(name=ActionName.CLICK, element_id=3)


def test_pictures_are_looked_for_under_the_folders_of_the_import_only(tmp_path):
    outside = tmp_path / "gone" / "data" / "logs" / "images" / ONE
    outside.mkdir(parents=True)
    logs = tmp_path / "logs"
    webgym_pictures(tmp_path / "kept", ONE)
    file = webgym_file(logs, [webgym_episode()])
    (missing,) = read(file, None)
    assert not missing.steps[0].picture.exists()
    (result,) = read(file, tmp_path / "kept" / "images")
    assert result.steps[0].picture == tmp_path / "kept" / "images" / ONE / "step_000.png"
    (skipped,) = read(webgym_file(logs, [webgym_episode(folder="../../..")], name="x.pt.iteration1"), None)
    assert "leaves its folder" in skipped.detail


def test_the_same_episode_has_the_same_digest_in_another_file(tmp_path):
    episode = webgym_episode()
    first = only(tmp_path / "a", episode)
    again = only(tmp_path / "b", episode, name="train_trajectories/train_trajectories.pt.iteration3_rank_1.checkpoint")
    assert first.digest == again.digest != only(tmp_path / "c", webgym_episode(trajectory_index=1)).digest


def test_empty_ones_and_odd_ones_are_told_and_the_others_read(tmp_path):
    huge = webgym_episode(reward={**SUCCEEDED, "reward": 0.5})
    given = [[], None, [{"observation": 3}], huge, webgym_episode(website=""), webgym_episode()]
    *skipped, last = read(webgym_file(tmp_path, given), None)
    assert [one.why for one in skipped] == [SkipReason.EMPTY] * 2 + [SkipReason.NOT_UNDERSTOOD] * 3
    assert isinstance(last, ImportedEpisode)
    assert skipped[2].where.endswith(".pt.iteration3, trajectory 2")


def test_files_of_another_form_are_refused(tmp_path):
    with pytest.raises(PickleRefused, match="holds no 'trajectories'"):
        list(read(torch_archive(tmp_path / "a.pt.iteration1", pickled({"weights": [1]})), None))
    other = pickled({"trajectories": [[{"reward": webgym("Reward"), "x": {"class": "webgym.models.Agent"}}]]})
    with pytest.raises(PickleRefused, match=r"it asks for 'webgym\.models\.Agent'"):
        list(read(torch_archive(tmp_path / "b.pt.iteration1", other), None))


def test_plain_and_packed_pickles_are_read_too(tmp_path):
    content = pickled({"trajectories": [webgym_episode()], "metadata": {}})
    for name, data in (("plain", content), ("packed", gzip.compress(content))):
        file = tmp_path / name
        file.write_bytes(data)
        (result,) = read(file, None)
        assert (result.policy, result.split) == ("webgym", Split.TRAIN)


def test_files_are_found_by_their_names(tmp_path):
    names = ["train_trajectories/train_trajectories.pt.iteration2", "test_trajectories/test_trajectories.pt.iteration2"]
    names += ["train_trajectories/train_trajectories.pt.iteration3_rank_1.checkpoint"]
    for name in (*names, "model.pt/x.bin", "train_trajectories/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find(tmp_path) == sorted(tmp_path / name for name in names)
    (tmp_path / "train_trajectories/train_trajectories.pt.iteration10").touch()
    assert find(tmp_path)[-1].name == "train_trajectories.pt.iteration10"  # after 3
    assert WEBGYM.find(tmp_path / "model.pt" / "x.bin") == [tmp_path / "model.pt" / "x.bin"]
