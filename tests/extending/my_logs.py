"""An import format of the tests: an episode is a JSON file with its screenshots beside it."""

import json
from dataclasses import replace

from webgym_cli.imports.registry import IMPORT_FORMATS
from webgym_cli.imports.source import ImportedEpisode, ImportFormat, compute_digest, parse_response, read_episode
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Outcome, PromptSpec, Score


def find(path):  # the files of this format under a path; none for another one's
    return sorted(path.rglob("*.episode.json"))


def read(file, images):  # yields the file's episodes; what read_one can't read is left out, with the reason
    yield read_episode(str(file), lambda: read_one(file, images or file.parent))


def read_one(file, images):
    record = json.loads(file.read_text())
    score = Score(source="environment", value=record["reward"])
    return ImportedEpisode(
        where=str(file),
        digest=compute_digest(record),  # an episode with the same digest is imported once
        task=Task(id=record["id"], instruction=record["goal"], start_url=record["url"], environment="web"),
        policy="my-agent",
        prompt=PromptSpec(),
        steps=tuple(
            replace(parse_response(step["response"], InteractionMode.COORDINATES), picture=images / step["screenshot"])
            for step in record["steps"]
        ),
        outcome=Outcome(reward=score.value, scores=(score,), stop=Stop.STEP_LIMIT),
        started_at=record["started_at"],
    )


IMPORT_FORMATS.register("my-logs", ImportFormat(find, read, "files like 7.episode.json, with screenshots beside them"))
