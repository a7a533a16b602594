"""The parts of the pages that are made from the code. `python -m tests.docs.generated` writes them anew."""

import re
from pathlib import Path

from pydantic import BaseModel

from tests.docs.pages import ROOT
from tests.docs.reference import fields_table, settings_reference
from webgym_cli.gateway.sessions import GatewayCall, SessionLine
from webgym_cli.records.action import Action, CustomAction
from webgym_cli.records.batch import BatchGroup, DroppedGroup, TrainingBatch
from webgym_cli.records.checkpoint import Checkpoint, LoraAdapter
from webgym_cli.records.dataset import Prepared, RlData
from webgym_cli.records.judgement import EpisodeLabel, Judgement, Verdict
from webgym_cli.records.recording import RecordedAction, RecordedTarget
from webgym_cli.records.sample import Message
from webgym_cli.records.sampling import PolicyVersion, Sampling
from webgym_cli.records.task import Episode, Task
from webgym_cli.records.tool import ToolCall
from webgym_cli.records.trajectory import (
    Element,
    FinalState,
    Generation,
    Observation,
    Outcome,
    PageState,
    PromptSpec,
    Score,
    Screenshot,
    ScrollExtent,
    SentPrompt,
    Step,
    Tab,
    ToolResult,
    Trajectory,
)
from webgym_cli.records.usage import TokenUsage
from webgym_cli.records.webrl import WebRLAction
from webgym_cli.store.metrics import Block
from webgym_cli.store.screenshots import Recoded
from webgym_cli.store.status import RankStatus, RunningCommand

SETTINGS = ROOT / "docs/settings.md"
FORMATS = ROOT / "docs/data-formats.md"
RECORDS: dict[str, type[BaseModel]] = {
    record.__name__: record
    for record in (
        *(
            Trajectory,
            PromptSpec,
            Step,
            Observation,
            PageState,
            ScrollExtent,
            Screenshot,
            Element,
            ToolResult,
            Action,
            ToolCall,
            Generation,
        ),
        *(SentPrompt, Message, BatchGroup, DroppedGroup, RecordedAction, RecordedTarget),
        *(WebRLAction, CustomAction, Tab, PolicyVersion, Sampling, Outcome, Score, FinalState),
        *(
            Judgement,
            EpisodeLabel,
            TokenUsage,
            Verdict,
            Task,
            Episode,
            Prepared,
            RlData,
            Checkpoint,
            LoraAdapter,
            TrainingBatch,
            Block,
            RankStatus,
            RunningCommand,
            Recoded,
            SessionLine,
            GatewayCall,
        ),
    )
}
"""The records whose fields the page lists, by the name that its marks have."""
_MARK = re.compile(r"(<!-- fields (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def documents() -> dict[Path, str]:
    """What each page has to be."""
    formats = _MARK.sub(lambda match: match[1] + fields_table(RECORDS[match[2]]) + "\n" + match[3], FORMATS.read_text())
    return {SETTINGS: settings_reference() + "\n", FORMATS: formats}


def listed() -> list[str]:
    return [mark[1] for mark in _MARK.findall(FORMATS.read_text())]


if __name__ == "__main__":
    for path, text in documents().items():
        path.write_text(text)
