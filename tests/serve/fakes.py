"""The process that speaks vLLM's HTTP, as an interpreter of the serve role, and questions to it."""

import asyncio
import json
import sys
from pathlib import Path

import httpx

FAKE = Path(__file__).with_name("fake_vllm.py")


def fake_python(folder, server=f"-S -E {FAKE}"):
    """Return an interpreter that runs the fake server whatever module or file it is to run."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -m ] && shift\nshift\nexec {sys.executable} {server} "$@"\n')
    python.chmod(0o755)
    return python


def weights(folder, content):
    """Make a model's folder with these weights; return it as text."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    header = b'{"lm_head.weight":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + content)
    return str(folder)


def adapter(folder, content, **config):
    """Make a LoRA adapter's folder; return it as text."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": 4, "bias": "none", **config}))
    header = json.dumps({"x.lora_B.weight": {"dtype": "U8", "shape": [1], "data_offsets": [0, len(content)]}}).encode()
    (folder / "adapter_model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + content)
    return str(folder)


async def until(happened):
    async with asyncio.timeout(60):
        while not happened():  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.02)


async def look(url):
    """Return what a fake server tells of itself: `pid`, `gpus`, `argv`, `calls` (the POSTs so far), `adapters`."""
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(f"{url.removesuffix('/v1')}/fake")).json()
