"""Runs a training and publishes its model. Can be killed at any moment and run again."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import psutil

from webgym_cli.config.model import Settings
from webgym_cli.config.train import TrainSettings
from webgym_cli.config.trust import is_own, refuse_foreign
from webgym_cli.errors import JobError
from webgym_cli.jobs.gpu import GpuMemory
from webgym_cli.jobs.machine_time import MachineMeter
from webgym_cli.jobs.process import KILL_MARGIN, Job
from webgym_cli.records.checkpoint import Checkpoint
from webgym_cli.records.events import EventSink, make_event
from webgym_cli.store.run import RunDir
from webgym_cli.train import deepspeed_ops, footprint, publish, working_dir
from webgym_cli.train.backend import TrainPlan
from webgym_cli.train.deepspeed_ops import remove_stale_locks
from webgym_cli.train.plan import child_environment
from webgym_cli.train.process_limits import POLL_SECONDS, STOP_GRACE, wait_within
from webgym_cli.train.ray_nodes import train_on_nodes
from webgym_cli.train.registry import find_backend
from webgym_cli.train.trainer_log import LOG, TRAINER_LOG, TrainerLogTail, trainer_error, with_report_folders
from webgym_cli.util.files import disk_errors, write_atomic, write_json
from webgym_cli.util.training_log import trim_log


async def execute(plan: TrainPlan, run: RunDir, settings: Settings, log_dir: Path, sink: EventSink) -> Checkpoint:
    """Train and make the result the current policy; the caller holds the run's lock.

    Raises `JobError` when the trainer fails, stops early or passes its time limit, `StoreError` when the disk refuses.
    When cancelled, the trainer's whole tree ends first.
    """
    meter = MachineMeter()
    for note in plan.notes:
        sink({"event": "train_note", "message": note})
    await _outlive_predecessor(plan)
    _require_space(plan, settings, sink)
    backend = find_backend(plan.algorithm)
    # The trainer reads DeepSpeed's pickles, unless the backend rebuilds the parent's states for it.
    unpickles = plan.start.mode == "continued" or (plan.start.mode == "carried" and backend.build_start is None)
    if unpickles and plan.launch.deepspeed is not None and not is_own(run.root):
        raise refuse_foreign(run.root, "DeepSpeed's states in its checkpoints are pickles, which execute code")
    with disk_errors(run.checkpoints):
        _enter_folder(plan, run, sink)
    if plan.start.mode != "finished":
        await backend.check_data(run, settings, log_dir)
    if plan.start.mode == "carried" and backend.build_start is not None:
        plan = await backend.build_start(plan, settings, log_dir / LOG, sink)
    with disk_errors(plan.folder):
        write_json(plan.folder / working_dir.RECORD, plan.start.training.model_dump(mode="json"))
        write_atomic(plan.folder / plan.launch.file, plan.text())
    sink(make_event("train_start", name=plan.data.name, mode=plan.start.mode, steps=plan.total_steps))
    if plan.start.mode != "finished":
        env = child_environment(plan.launch.env, settings, plan.launch.python)
        for note in await asyncio.to_thread(remove_stale_locks, env):
            sink({"event": "train_note", "message": note})
        await deepspeed_ops.require_ops(plan, settings, log_dir / LOG, sink)
        await _train(plan, run, settings, log_dir, sink)
    weights = publish.finished_checkpoint(plan, log_dir / LOG)
    weights = await backend.export(plan, weights, settings, log_dir / LOG, sink)
    if note := await asyncio.to_thread(publish.check_weights, plan, weights, log_dir / LOG):
        sink({"event": "train_note", "message": note})
    checkpoint = await asyncio.to_thread(publish.publish, plan, run, settings, weights, log_dir, meter)
    sink(make_event("train_done", mode=plan.start.mode, **checkpoint.model_dump(mode="json")))
    return checkpoint


def _require_space(plan: TrainPlan, settings: Settings, sink: EventSink) -> None:
    """Raise `StoreError` if the disk is too small for the rest of the training."""
    if not settings.train.check_disk_space:
        return
    if plan.disk_bytes is None:
        # A model that is not downloaded yet, or a backend of the user's, whose files webgym can't estimate.
        message = f"how much disk the training of {plan.data.model} needs is not known: the free space is not checked"
        sink({"event": "train_note", "message": message})
        return
    there: list[Path] = []
    if plan.start.keeps_folder:
        there = working_dir.numbered_checkpoints(plan.start.adopted or plan.folder)
    footprint.require_space(plan.folder.parent, plan.disk_bytes - sum(map(footprint.size_of, there)))


async def _outlive_predecessor(plan: TrainPlan) -> None:
    """Wait until the guard of a just killed webgym has ended that webgym's trainer. Raises `JobError`."""
    folder = str((plan.start.adopted or plan.folder).resolve())  # as the system tells it
    deadline = time.monotonic() + STOP_GRACE + KILL_MARGIN
    while alive := [process.pid for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == folder]:
        if time.monotonic() > deadline:
            raise JobError(
                f"{folder}: process {alive[0]} still works there", hint="stop it, then run the same command again"
            )
        await asyncio.sleep(POLL_SECONDS)


def _enter_folder(plan: TrainPlan, run: RunDir, sink: EventSink) -> None:
    """Prepare the working folder: an interrupted training's as it is, else an empty one."""
    if plan.start.adopted is not None:
        shutil.rmtree(plan.folder, ignore_errors=True)
        plan.start.adopted.rename(plan.folder)
    removed = publish.remove_leftovers(run, keep=lambda path: plan.start.keeps_folder and path == plan.folder)
    for path in removed:
        if path.suffix == ".partial":
            message = (
                f"{path.name}: an interrupted training without a usable checkpoint, or of another training: removed"
            )
            sink({"event": "train_note", "message": message})
    plan.folder.mkdir(parents=True, exist_ok=True)
    if plan.start.mode == "continued" and plan.start.source is not None:
        for checkpoint in working_dir.numbered_checkpoints(plan.folder):
            if checkpoint != plan.start.source:  # torn, or older
                shutil.rmtree(checkpoint)
        trim_log(plan.folder / TRAINER_LOG, working_dir.step_of(plan.start.source))


async def _train(plan: TrainPlan, run: RunDir, settings: Settings, log_dir: Path, sink: EventSink) -> None:
    """Run the trainer to its end, on all nodes. Raises `WebGymError`."""

    async def train_here(rendezvous: dict[str, str]) -> None:
        env = child_environment(plan.launch.env | rendezvous, settings, plan.launch.python)
        await _run_trainer(plan, with_report_folders(env, log_dir, plan.data.name), settings.train, log_dir / LOG, sink)

    await train_on_nodes(plan, run, settings, log_dir, sink, train_here)


async def _run_trainer(plan: TrainPlan, env: dict[str, str], limits: TrainSettings, log: Path, sink: EventSink) -> None:
    """Run this node's trainer. Raises `JobError` where it fails; when cancelled, it ends first."""
    follower = TrainerLogTail(plan.folder / TRAINER_LOG)
    follower.skip()
    memory = GpuMemory.of(plan.launch.placement.device, sink)
    job = Job.spawn(plan.launch.argv, env=env, log=log, cwd=plan.folder, grace=STOP_GRACE)

    def pass_on() -> None:
        for event in follower.new_events():
            sink(event)

    async def look(note: str) -> None:
        if note:
            sink({"event": "train_note", "message": note})
        await asyncio.to_thread(memory.note, job.pid)

    try:
        code = await wait_within(limits, job, "the trainer", plan.folder, pass_on, look)
    finally:
        pass_on()
    await memory.freed()
    if code != 0:
        raise trainer_error(code, log)
