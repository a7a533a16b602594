"""The Ray actor of a training over several nodes: a `TrainerNode`, and the files of a node without the run's folder."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from pathlib import Path
from typing import Any

import webgym_cli
from webgym_cli.config.model import Settings
from webgym_cli.errors import WebGymError
from webgym_cli.jobs.ray_cluster import wait_for_file
from webgym_cli.train import working_dir
from webgym_cli.train.nodes.trainer_node import MARKER_SECONDS, TrainerNode
from webgym_cli.train.nodes.transfer import FileEntry, NodeCache, TransferManifest, read_piece
from webgym_cli.venvs.locate import role_home, role_python


class RayTrainerNode(TrainerNode):
    """What Ray makes an actor of. Ray ends it when the command of node 0 ends, however that is."""

    def __init__(self) -> None:
        """Wait for `inspect`: an actor is made without arguments, so that another version can say which it is."""

    async def inspect(self, rank: int, settings: Settings, root: str, marker: str) -> dict[str, Any]:
        """Return version, fault, and whether the run's folder is visible. `marker`: a new file there; or empty."""
        super().__init__(rank, settings)
        fault = ""
        try:
            role_python(settings, "train")
        except WebGymError as error:
            fault = f"{error}; {error.hint}" if error.hint else str(error)
        visible = bool(marker) and await wait_for_file(Path(marker), MARKER_SECONDS)
        if not visible:
            key = hashlib.sha256(f"{root} {rank}".encode()).hexdigest()[:16]
            self._cache = NodeCache(role_home() / "nodes" / key)
        return {"version": webgym_cli.__version__, "visible": visible, "fault": fault}

    async def missing(self, manifest: str) -> list[str]:
        """Return the entries whose files are not here yet."""
        entries = await asyncio.to_thread(self._cache.missing, TransferManifest.model_validate_json(manifest))
        return [entry.model_dump_json() for entry in entries]

    async def put(self, entry: str, offset: int, piece: bytes) -> None:
        """Store a piece of a file."""
        await asyncio.to_thread(self._cache.put, FileEntry.model_validate_json(entry), offset, piece)

    async def lay_out(self, manifest: str) -> None:
        """Build the training's folders."""
        self.folder = await asyncio.to_thread(self._cache.lay_out, TransferManifest.model_validate_json(manifest))

    async def get(self, path: str, offset: int) -> bytes:
        """Return a piece of a file that `status` names."""
        return await asyncio.to_thread(read_piece, (self.folder or Path()) / path, offset)

    def list_files(self) -> dict[str, int]:
        """Return torch's complete files in the two newest checkpoints; older checkpoints are removed here."""
        if self.folder is None:
            return {}
        newest = working_dir.numbered_checkpoints(self.folder)
        for older in newest[2:]:
            shutil.rmtree(older, ignore_errors=True)
        files = [path for folder in newest[:2] for path in folder.rglob("*.pt*") if working_dir.is_whole_archive(path)]
        return {str(path.relative_to(self.folder)): path.stat().st_size for path in sorted(files)}
