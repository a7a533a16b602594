"""Imports what webgym's commands import. `tests.forked` has it done once, in the process that it forks from."""

import importlib
import pkgutil

import webgym_cli
from tests.test_contract import ALONE

OTHERS = ["PIL.Image", "aiohttp", "duckdb", "httpx", "jinja2", "openai", "playwright.async_api", "psutil"]
OTHERS += ["pyarrow.parquet", "rich.live", "rich.progress", "rich.table", "tldextract", "tokenizers", "websockets"]
ELSEWHERE = (*(file.removesuffix(".py").replace("/", ".") for file in ALONE), "trainer", "__main__", "jobs.ray")
ELSEWHERE += ("train.llamafactory.rendering_script", "env_server.adapter", "env_server.server")  # not installed here

for name in OTHERS:
    importlib.import_module(name)
for module in pkgutil.walk_packages(webgym_cli.__path__, "webgym_cli."):
    if not module.name.removeprefix("webgym_cli.").startswith(ELSEWHERE):
        importlib.import_module(module.name)
