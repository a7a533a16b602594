"""The examples of four pages run as printed over filled runs: what only reads as it stands, the rest as a dry run."""

import json
import shutil

import pytest

from tests.cli.runs import filled
from tests.docs.pages import ROOT, shell_lines, webgym_commands
from tests.docs.test_pages import parsed
from tests.forked import webgym
from tests.prepare.buffer import fill
from tests.records.builders import trajectory
from webgym_cli.records.task import Split

RL = {"train.algorithm=rloo", "train.algorithm=webrl"}


def runs_here(args):
    """Whether an example needs no sites or GPUs of the reader's, no failed tasks of the web and no sampled tokens."""
    if args[0] in ("login", "doctor") or args[:2] == ("tasks", "generate"):
        return False
    return not (args[0] == "prepare" and RL.intersection(args))  # tests/loop has these


EXAMPLES = [
    pytest.param(page, args, id=f"{page}-{' '.join(args)}")
    for page in ("commands", "webrl", "first-gpu-hour", "actions")
    for args in dict.fromkeys(
        tuple(args) for line in shell_lines(ROOT / f"docs/{page}.md") for args in webgym_commands(line)
    )
    if runs_here(args)
]
EVAL = {"eval_types": ["string_match"], "reference_answers": {"exact_match": "x"}}
SHOP = "sites:\n  shopping: {url: 'http://10.0.0.1:7770'}\n"
TASK = {"id": "t", "instruction": "Find it.", "start_url": "http://10.0.0.1:7770", "sites": ["shopping"], "eval": EVAL}
RAW = {"task_id": 1, "sites": ["shopping"], "start_url": "__SHOPPING__", "intent": "Find it.", "eval": EVAL}
TOOL = (
    "from webgym_cli.tools import tool\n\n\n@tool\ndef search(query: str) -> str:\n    '''Search.'''\n    return ''\n"
)
JUDGED = (
    "judge.base_url=https://HOST/v1",
    "judge.model=NAME",
    "generate.base_url=https://HOST/v1",
    "orm.model=models/orm",
)
ARENA = (
    *("tasks.train=original.jsonl", "tasks.test=lite.jsonl"),
    *("context_config.prompt_version=webrl", "sites.shopping.url=http://10.0.0.1:7770"),
    "sites.shopping.accounts.user.account=ann",
    "sites.shopping.accounts.user.password_env_var=WEBARENA_SHOPPING_PASSWORD",
    "judge.base_url=",  # its verdicts would precede those of the outcome reward model
)
REALLY = {"export-sharegpt", "report"}
"""Commands whose result is seen, though they have a dry run."""
SHOWN = {"--open", "--watch"}
"""Options that open a browser or don't end."""
BEFORE = 3
"""Exit code of a command without its stage before, which was a dry run here."""


def write_inputs(folder):
    """Write the files that the examples name, but those that they write."""
    arena = json.dumps(TASK | {"environment": "webarena"})
    web = json.dumps({"id": "t", "instruction": "Find it.", "start_url": "https://example.com/"})
    gsm8k = json.dumps([{"question": "1+1?", "answer": "2"}])
    (folder / "data").mkdir(parents=True)
    for name, content in {
        "train.jsonl": web,
        "tasks.jsonl": web,
        "lite.jsonl": arena,
        "my_tools.py": TOOL,
        "gsm8k_train.json": gsm8k,
        "data/gsm8k_train.json": gsm8k,
        "data/gsm8k_test.json": gsm8k,
        "sites.yaml": SHOP,
        "WebArena-Lite_info.json": json.dumps([RAW]),
        "original.jsonl": arena,
    }.items():
        (folder / name).write_text(content)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return a folder by page, with runs; and, by `new`, one for the commands that make their run."""
    folders = {
        name: tmp_path_factory.mktemp(name) / "work"
        for name in ("commands", "webrl", "first-gpu-hour", "actions", "new")
    }
    for name, folder in folders.items():
        write_inputs(folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            run = filled(folder, *JUDGED, *(ARENA if name == "webrl" else ()))
        fill(run, *(trajectory(at, split=Split.TEST, iteration=version) for at in range(2) for version in (0, 1)))
        for copy in ("sft", *(("first", *"abchie") if name != "new" else ())):
            shutil.copytree(run.root, folder / "runs" / copy)
        models = ("models/orm", "runs/sft/model.pt", "THUDM/webrl-llama-3.1-8b")
        for model in (
            *models,
            *(("runs/demo-model", "runs/demo-webrl-model", "models/Qwen3-VL-2B-Instruct") if name == "new" else ()),
        ):
            shutil.copytree(folder / "model", folder / model, dirs_exist_ok=True)
    return folders


def makes_its_run(args):
    """Whether a command starts a run with settings that are kept."""
    return args[0] in ("rollout", "loop", "curriculum") and (
        "-c" in args or any("tasks.train=" in word for word in args)
    )


@pytest.mark.parametrize(("page", "args"), EXAMPLES)
def test_an_example_runs_as_printed(places, page, args):
    folder = places["new" if makes_its_run(args) else page]
    words = [word for word in args if word not in SHOWN]
    if words[:2] == ["tasks", "check"]:
        shutil.copy(folder / "lite.jsonl", folder / "phase1.jsonl")
    elif "-o" in words:
        (folder / words[words.index("-o") + 1]).unlink(missing_ok=True)
    dry = "dry_run" in parsed(args).params
    if dry and args[0] not in REALLY and "--dry-run" not in words:
        words.append("--dry-run")
    if "trust" in parsed(args).params:  # these runs are copies
        words.append("--trust")
    environment = {"WEBARENA_SHOPPING_PASSWORD": "x"}
    if makes_its_run(args):
        environment["WEBGYM_POLICY_CONFIG__BASE_MODEL"] = str(folder / "model")
    done = webgym(*words, cwd=folder, code=None, stdin="train-0000-00000\n", **environment)
    assert done.returncode == 0 or (done.returncode == BEFORE and args[0] == "train"), done.stderr
