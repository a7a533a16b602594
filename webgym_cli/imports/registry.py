"""Formats of `webgym import`."""

from __future__ import annotations

from webgym_cli.imports.source import ImportFormat
from webgym_cli.util.registry import Registry

_PACKAGE = "webgym_cli.imports"
# In the order of detection: the formats before `webgym` are known by content; a WebRL rollout is a VisualAgentBench
# folder with traces.
IMPORT_FORMATS: Registry[ImportFormat] = Registry(
    noun="import format",
    setting="FORMAT",
    entry_point_group="webgym.import_formats",
    package=f"{_PACKAGE}.source",
    item_type=ImportFormat,
    usage=f"from {_PACKAGE}.source import ImportFormat, and make one of your functions",
    builtin={
        "run": f"{_PACKAGE}.stored_run:RUN",
        "messages": f"{_PACKAGE}.messages:MESSAGES",
        "openwebrl": f"{_PACKAGE}.published:OPENWEBRL",
        "fara": f"{_PACKAGE}.published:FARA",
        "molmoweb": f"{_PACKAGE}.published:MOLMOWEB",
        "webgym": f"{_PACKAGE}.webgym:WEBGYM",
        "webrl": f"{_PACKAGE}.visualagentbench:WEBRL",
        "visualagentbench": f"{_PACKAGE}.visualagentbench:VISUALAGENTBENCH",
        "webrl-data": f"{_PACKAGE}.webrl_data:WEBRL_DATA",
    },
)
