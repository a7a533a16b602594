"""Every export is read by those it is made for: LLaMA-Factory, `datasets`, an OpenAI-compatible server."""

import json
from pathlib import Path

import httpx
import pytest

from tests.prepare.buffer import fill
from tests.prepare.exported import exported
from tests.records.builders import UNSOLVED, new_run, trajectory
from webgym_cli.prepare.export.options import ExportObjective, ExportUnit
from webgym_cli.prepare.export.registry import FORMATS
from webgym_cli.records.dataset import TRAIN

pytestmark = pytest.mark.stack
HERE = Path(__file__).parent
END = "<|im_end|>\n"
READ_BY_LLAMAFACTORY = [form for form in FORMATS.builtin if FORMATS.find(form).dataset_entry is not None]
COMMON = {"do_train": True, "finetuning_type": "full", "dataset": TRAIN, "template": "qwen3_vl_nothink"}
COMMON |= {"cutoff_len": 16384, "image_min_pixels": 32 * 32, "image_max_pixels": 1280 * 768}
COMMON |= {"remove_unused_columns": False, "report_to": "none", "use_cpu": True}


def replies(value):
    return [f"{step.response}{END}" for step in value.steps]


def replied(number, *texts, **changes):
    """Return a trajectory with these replies."""
    episode = trajectory(number, steps=len(texts), **changes)
    steps = [step.model_copy(update={"response": text}) for step, text in zip(episode.steps, texts, strict=True)]
    return episode.model_copy(update={"steps": tuple(steps)})


GOOD = replied(0, "click a", "click b", "click c")
SHORT = replied(1, "click d", "click e")
BAD = replied(2, "click a", "click z", outcome=UNSOLVED)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two successes and a failure whose first reply is a success's too."""
    run_dir = new_run(tmp_path_factory.mktemp("exports") / "run")
    fill(run_dir, GOOD, SHORT, BAD)
    return run_dir


@pytest.fixture(scope="module")
def loaded(in_train_role, run, tiny_model_dir, tmp_path_factory):
    """What LLaMA-Factory makes of each exported folder, by `<form> <unit> <objective> <mask_history>`."""
    base = tmp_path_factory.mktemp("folders")
    cases = {}
    for form in READ_BY_LLAMAFACTORY:
        for unit, objective in [
            (ExportUnit.STEP, ExportObjective.SFT),
            (ExportUnit.TRAJECTORY, ExportObjective.SFT),
            (ExportUnit.STEP, ExportObjective.DPO),
            (ExportUnit.STEP, ExportObjective.KTO),
            (ExportUnit.TRAJECTORY, ExportObjective.KTO),
        ]:
            folder = base / f"{form}-{unit}-{objective}"
            exported(run, folder, format=form, unit=unit, objective=objective)
            for mask in [True, False] if objective is ExportObjective.SFT else [False]:  # refused for the others
                cases[f"{form} {unit} {objective} {mask}"] = settings(tiny_model_dir, folder, objective, mask)
    (base / "cases.json").write_text(json.dumps(cases))
    in_train_role(HERE / "llamafactory_load.py", base / "cases.json", base / "loaded.json")
    return json.loads((base / "loaded.json").read_text())


def settings(model, folder, objective, mask_history):
    places = {"model_name_or_path": str(model), "dataset_dir": str(folder), "output_dir": str(folder / "out")}
    return {**COMMON, **places, "stage": str(objective), "mask_history": mask_history}


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("form", READ_BY_LLAMAFACTORY)
def test_steps(loaded, form, mask):
    rows = loaded[f"{form} step sft {mask}"]
    assert [row["images"] for row in rows] == [row["decoded"] / 2 for row in rows] == [1, 2, 3, 1, 2]
    expected = [replies(item)[: index + 1] for item in (GOOD, SHORT) for index in range(len(item.steps))]
    # with mask_history only the step's own reply is trained, without it its past once more
    assert [row["labels"] for row in rows] == [texts[-1:] if mask else texts for texts in expected]


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("form", READ_BY_LLAMAFACTORY)
def test_whole_trajectories(loaded, form, mask):
    rows = loaded[f"{form} trajectory sft {mask}"]
    assert [row["images"] for row in rows] == [row["decoded"] / 2 for row in rows] == [3, 2]
    assert [row["labels"] for row in rows] == [replies(item)[-1:] if mask else replies(item) for item in (GOOD, SHORT)]
    assert all(row["prompt"].startswith("<|im_start|>system\nYou operate a web browser") for row in rows)


@pytest.mark.parametrize("form", READ_BY_LLAMAFACTORY)
def test_pairs(loaded, form):
    rows = loaded[f"{form} step dpo False"]
    result = sorted((*row["chosen_labels"], *row["rejected_labels"], row["images"]) for row in rows)
    # on the first page only one success said something else; on the second only one had gone the same way before
    assert result == [(f"click b{END}", f"click z{END}", 2), (f"click d{END}", f"click a{END}", 1)]
    assert all(row["decoded"] == 4 * row["images"] for row in rows)


@pytest.mark.parametrize("form", READ_BY_LLAMAFACTORY)
def test_labels(loaded, form):
    rows = loaded[f"{form} step kto False"]
    assert [row["kto_tag"] for row in rows] == [True] * 5 + [False] * 2
    assert [row["labels"] for row in rows] == [[text] for item in (GOOD, SHORT, BAD) for text in replies(item)]
    whole = loaded[f"{form} trajectory kto False"]
    expected = [(item is not BAD, replies(item)[-1:], len(item.steps)) for item in (GOOD, SHORT, BAD)]
    assert [(row["kto_tag"], row["labels"], row["images"]) for row in whole] == expected


def test_datasets_reads_parquet(in_train_role, run, tmp_path):
    exported(run, tmp_path / "hf", format="hf")
    in_train_role(HERE / "datasets_load.py", tmp_path / "hf", tmp_path / "out.json")
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["columns"] == ["id", "messages", "images"]
    names = [f"{item.id}/{index}" for item in (GOOD, SHORT) for index in range(len(item.steps))]
    assert record["ids"] == names
    assert record["sizes"] == [[[40, 32]] * count for count in (1, 2, 3, 1, 2)]


def test_a_chat_server_takes_openai_messages(run, policy_server):
    _, records = exported(run, format="openai", embed_images=True)
    for record in records:
        body = {"model": "policy", "messages": record["messages"][:-1], "max_tokens": 1}
        answer = httpx.post(f"{policy_server.base_url}/chat/completions", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
