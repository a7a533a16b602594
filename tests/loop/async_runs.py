"""Asynchronous loops on the dial of `tests/extending`, as processes that can be killed, and what they leave on disk."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.executable import Command
from tests.forked import webgym

PLUGINS = (Path(__file__).parent, Path(__file__).parents[1] / "extending")


@dataclass
class AsyncRun:
    """A run in a folder outside the repository."""

    folder: Path
    policy: str
    """The policy server's base URL."""
    model: Path

    def __post_init__(self) -> None:
        """Lay the plugins out."""
        self.folder.mkdir(exist_ok=True)
        for folder in PLUGINS:
            for name in ("dial_plugin.py", "copying_plugin.py", "copying_trainer.py"):
                if (folder / name).is_file():
                    shutil.copy(folder / name, self.folder)

    @property
    def root(self) -> Path:
        return self.folder / "run"

    def words(self, command: str, *assignments: str) -> list[str]:
        """Return a command's words on the run, with the settings of a loop of small batches."""
        algorithm = ("bf16=false", "min_trajectory_steps=1", "min_token_length=1")
        policy = (f"base_model={self.model}", "top_k=-1", "top_p=1")
        settings = (
            *('plugins=["dial_plugin.py", "copying_plugin.py"]', "tasks.train=dial:all", "agent.num_chains=2"),
            *(f"policy_config.{text}" for text in policy),
            *(f"algorithm_config.{text}" for text in algorithm),
            *(f"rollout.policy={self.policy}", "rollout.episodes=8", "rollout.concurrency=4", "loop.eval_every=0"),
            *assignments,
        )
        kept = command == "resume"  # the run keeps its settings
        words = [word for assignment in settings for word in ("-s", assignment) if not kept]
        return [*command.split(), "run", *words]

    def start(self, *assignments: str, **environ: str) -> Command:
        """Start a loop."""
        return Command(self.folder, *self.words("loop --json", *assignments), **environ)

    def finish(self, *assignments: str, command: str = "loop --json", **environ: str) -> tuple[int, str, str]:
        """Run a command to its end and return exit status, stdout and stderr."""
        done = webgym(*self.words(command, *assignments), cwd=self.folder, code=None, **environ)
        return done.returncode, done.stdout, done.stderr

    def read_events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self._lines(self.root / "metrics.jsonl") if event["event"] == name]

    def read_ledger(self) -> dict[int, dict[str, Any]]:
        return {batch["parent"]: batch for batch in self._lines(self.root / "batches.jsonl")}

    def read_stored(self) -> list[dict[str, Any]]:
        files = sorted(self.root.glob("train_trajectories/*/part-*.jsonl"))
        return [trajectory for file in files for trajectory in self._lines(file)]

    def read_versions(self) -> list[int]:
        """Return the versions that were trained, each of which has a checkpoint."""
        records = self.root.glob("checkpoints/model_*/checkpoint.json")
        return sorted(json.loads(record.read_text())["iteration"] for record in records)

    def read_trained(self) -> dict[int, set[str]]:
        """Return the ids that each trainer was given, by the version that it trained."""
        fields = {}
        for file in self.root.glob("checkpoints/model_*/trained.json"):
            record = json.loads((file.parent / "checkpoint.json").read_text())
            fields[record["iteration"]] = set(json.loads(file.read_text()))
        return fields

    def _lines(self, file: Path) -> Iterator[dict[str, Any]]:
        for line in file.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # torn by a kill, and closed by the next append
                continue


def members(batch: dict[str, Any]) -> list[str]:
    """Return the ids of a batch's trajectories."""
    return [name for group in batch["groups"] for name in group["trajectories"]]


def check_ledger(run: AsyncRun, *, bound: int) -> dict[str, Any]:
    """Assert what must hold of a run after any kills, and return what it came to."""
    ledger, stored = run.read_ledger(), run.read_stored()
    by_id = {trajectory["id"]: trajectory for trajectory in stored}
    assert len(by_id) == len(stored), "an attempt was stored twice"
    trained = [name for batch in ledger.values() for name in members(batch)]
    assert len(trained) == len(set(trained)), "an episode was trained on twice"
    assert set(trained) <= set(by_id), "an episode of a batch is not stored"
    ages = [
        parent - step["generation"]["policy_version"]["number"]
        for parent, batch in ledger.items()
        for name in members(batch)
        for step in by_id[name]["steps"]
    ]
    assert max(ages) <= bound
    for parent, ids in run.read_trained().items():
        assert ids == set(members(ledger[parent])), "the trainer was given others than the ledger has"
    versions = run.read_versions()
    assert versions == sorted(ledger) == list(range(len(ledger)))
    finished = {name for name, trajectory in by_id.items() if trajectory["outcome"]["failure"] is None}
    return {
        "versions": len(versions),
        "stored": len(stored),
        "trained": len(trained),
        "finished_not_trained": len(finished - set(trained)),
        "max_staleness": max(ages),
        "mean_staleness": round(sum(ages) / len(ages), 3),
    }
