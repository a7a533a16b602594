"""Other systems' files, written as they do: by pickle, from classes of their names, in a process apart."""

import json
import subprocess
import sys
import zipfile

from tests.records.builders import png
from webgym_cli.agent.forms.tools import render_web_action
from webgym_cli.records.action import Action, ActionName, InteractionMode

WRITER = '''
import json, pickle, sys, types

def module(name):
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    return sys.modules[name]

def make(spec):
    """{"class": "a.b.C", "base": "dict", "fields": {...}, "items": {...}} becomes an object of such a class."""
    if isinstance(spec, list):
        return [make(item) for item in spec]
    if not isinstance(spec, dict):
        return spec
    if "class" not in spec:
        return {key: make(item) for key, item in spec.items()}
    home, _, name = spec["class"].rpartition(".")
    home = module(home)
    if not hasattr(home, name):
        base = {"dict": dict}.get(spec.get("base"), object)
        setattr(home, name, type(name, (base,), {"__module__": home.__name__}))
    made = getattr(home, name)()
    made.__dict__.update({key: make(item) for key, item in spec.get("fields", {}).items()})
    if spec.get("items"):
        made.update({key: make(item) for key, item in spec["items"].items()})
    return made

given = json.load(sys.stdin)
for spec in given["values"]:
    sys.stdout.buffer.write(pickle.dumps(make(spec), protocol=given["protocol"]))
'''


def pickled(*values, protocol=2):
    """Return the pickles of values, one behind the other; `{"class": ...}` stands for an object."""
    given = json.dumps({"values": values, "protocol": protocol})
    return subprocess.run([sys.executable, "-c", WRITER], input=given.encode(), capture_output=True, check=True).stdout


def thing(name, base=None, items=None, **fields):
    """Return what `pickled` makes an object of."""
    return {"class": name, "base": base, "fields": fields, "items": items}


def torch_archive(path, content, packed=False):
    """Write a file as `torch.save` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/version", "3\\n")
    return path


def webgym(name, **fields):
    """Return an object of one of WebGym's record classes."""
    return thing(f"webgym.data.components.{name}", **fields)


CALL = render_web_action(Action(name=ActionName.CLICK, coordinate=(500, 250)), InteractionMode.COORDINATES)
ANSWER = render_web_action(Action(name=ActionName.ANSWER, text="1632"), InteractionMode.COORDINATES)
TASK = {
    "task_name": "When was it painted?",
    "domain": "Art",
    "subdomain": "Museums",
    "website": "https://museum.example/",
    "difficulty": 2,
    "evaluator_reference": ["the year is named", "the painter is named"],
    "reference_answer": "1632",
    "attempt_level": 0,
    "task_id": 7,
    "max_steps": 10,
    "trajectory_index": 0,
}
IN_PROGRESS = {"reward": 0, "evaluation": "Task in progress", "is_blocked": False, "submit": False}
SUCCEEDED = {
    "reward": 1,
    "evaluation": [
        "[Criterion B - Anti-Hallucination] All is there. Verdict: SUCCESS",
        "[Criterion A - Fact 1] Seen. Verdict: SUCCESS",
        "[Criterion A - Fact 2] Seen. Verdict: SUCCESS",
        "[Reference Answer Evaluation] It matches. Verdict: SUCCESS",
    ],
    "is_blocked": False,
    "submit": True,
    "submission_judgment": "YES",
}
REFUTED = {
    **SUCCEEDED,
    "reward": 0,
    "evaluation": [
        "[Criterion B - Anti-Hallucination] Fine.\nVerdict: SUCCESS\nSo it is NOT SUCCESSFUL elsewhere",
        "[Criterion A - Fact 1] Not there.\nVerdict:\nNOT SUCCESS",
    ],
}


def webgym_step(folder, number, raw, reward, key="click", arguments=None, task=TASK, **more):
    """Return a step of WebGym's, its picture at `images/<folder>/step_<number>.png`."""
    return {
        "observation": webgym(
            "Observation",
            task=webgym("Task", **task),
            image_path=f"/gone/data/logs/images/{folder}/step_{number:03d}.png",
            ac_tree="",
            page_metadata={"title": f"Page {number}", "url": f"https://museum.example/{number}"},
        ),
        "action": webgym("Action", action={"key": key, "arguments": arguments or {}}, action_string=""),
        "response": webgym("Response", raw_response=raw, answering_tokens={"action": ""}, raw_prompt=f"[{number}]"),
        "reward": webgym("Reward", **reward),
        **more,
    }


def webgym_episode(folder="task_0000_ab", reward=SUCCEEDED, **task):
    """Return an episode of two steps: a click that changes nothing, then the answer."""
    task = {**TASK, **task}
    return [
        webgym_step(folder, 0, CALL, IN_PROGRESS, task=task, same_as_next_screenshot=True),
        webgym_step(folder, 1, ANSWER, reward, key="answer", task=task),
    ]


def webgym_pictures(root, *folders, steps=2):
    """Store the pictures of episodes as WebGym does."""
    for shade, folder in enumerate(folders):
        (root / "images" / folder).mkdir(parents=True)
        for number in range(steps):
            (root / "images" / folder / f"step_{number:03d}.png").write_bytes(png(10 * shade + number, 64, 48))


def webgym_file(root, trajectories, name="train_trajectories/train_trajectories.pt.iteration3", **metadata):
    """Write a trajectory file of WebGym's."""
    fields = {"split": "train", "solution_model": "qwen", "judge_model": "gpt", "timestamp": "2026-01-02T03:04:05"}
    return torch_archive(root / name, pickled({"trajectories": trajectories, "metadata": fields | metadata}))


PAGE = '<html> <button id="3" data-bbox="16,12,32,24"> Buy </button> <input id="4" data-bbox="0,0,8,8"> </html>'


def webrl_episode(root, name, responses, score=1.0, labelled=None, trace=True):
    """Write the files of one of VisualAgentBench's episodes."""
    for folder in ("actions", f"screehshots/{name}", "traces", "fixed_traces"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    actions = {"task_id": int(name), "score": score, "actions": list(responses)}
    (root / "actions" / f"{name}.json").write_text(json.dumps(actions))
    for number in range(len(responses)):
        (root / "screehshots" / name / f"{number}.png").write_bytes(png(number, 64, 48))
    known = {"trace_id": int(name), "html": PAGE, "target": "Buy it"}
    lines = [
        {**known, "index": at, "prompt": "Buy it" if not at else "", "response": result}
        for at, result in enumerate(responses)
    ]
    if trace:
        (root / "traces" / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if labelled is not None:
        rows = [{**line, "fixed_response": line["response"], "score": labelled} for line in lines]
        (root / "fixed_traces" / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    body = "<h2>New Page</h2>\n<h3 class='url'><a href=http://shop:7770/>URL: http://shop:7770/?a=1&amp;b=2</a></h3>\n"
    head = f"<pre>task_id: {name}\nstart_url: http://shop:7770/\nintent: Buy it\n</pre>"
    (root / f"render_{name}.html").write_text(f"<body>{head}\n{body}</body>")
    return root
