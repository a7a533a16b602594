"""Formats of `webgym import`."""

from __future__ import annotations

from webgym_cli.imports.source import ImportFormat
from webgym_cli.util.registry import Registry, list_constants

_PACKAGE = "webgym_cli.imports"
RESULTS = ("webvoyager", "online-mind2web")
# In the order of detection: the formats before `webgym` are known by content; a WebRL rollout is a VisualAgentBench
# folder with traces.
IMPORT_FORMATS: Registry[ImportFormat] = Registry(
    noun="import format",
    setting="FORMAT",
    item_type=ImportFormat,
    usage=f"from {_PACKAGE}.source import ImportFormat, and make one of your functions",
    builtin={
        **list_constants(f"{_PACKAGE}.stored_run", "run"),
        **list_constants(f"{_PACKAGE}.messages", "messages"),
        **list_constants(
            f"{_PACKAGE}.published", "openwebrl", "fara", "molmoweb", "cuaverifierbench", "agentrewardbench"
        ),
        **list_constants(f"{_PACKAGE}.results", "webvoyager"),
        "online-mind2web": f"{_PACKAGE}.results:OM2W",
        **list_constants(f"{_PACKAGE}.webgym", "webgym"),
        **list_constants(f"{_PACKAGE}.visualagentbench", "webrl", "visualagentbench"),
        **list_constants(f"{_PACKAGE}.webrl_data", "webrl-data"),
    },
)
