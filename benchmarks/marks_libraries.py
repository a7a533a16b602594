"""Pages of component libraries, each bundled from a source in `libraries/` with npm's packages and esbuild."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks import marks_by_hand
from benchmarks.marks_apps import NPM_INSTALL, App, AppState, run_command
from benchmarks.marks_states import SERVE
from webgym_cli.errors import JobError

PACKAGES = (
    *("esbuild@0.28", "react@18", "react-dom@18", "dayjs@1", "antd@5", "vue@3", "element-plus@2", "@xyflow/react@12"),
    *("@mantine/core@7", "@mantine/dates@7", "@mantine/hooks@7", "@hello-pangea/dnd@17", "handsontable@14"),
    *marks_by_hand.PACKAGES,
)
_SOURCES = Path(__file__).parent / "libraries"
_LOADERS = ("js=jsx", *(f"{kind}=dataurl" for kind in ("svg", "png", "gif", "woff", "woff2", "ttf", "eot")))
_DEFINED = ('process.env.NODE_ENV="production"', "__VUE_OPTIONS_API__=true", "__VUE_PROD_DEVTOOLS__=false")


def install_libraries(folder: Path) -> None:
    """Install the packages and bundle each page into the folder; what is there already stays. Raises `JobError`."""
    if not shutil.which("npm"):
        raise JobError("npm is missing", hint="install Node.js, or name other applications by --only")
    # Apart from the other applications: React's versions would conflict.
    home = folder / "libraries"
    home.mkdir(exist_ok=True)
    bundler = home / "node_modules" / ".bin" / "esbuild"
    if not all((home / "node_modules" / package.rpartition("@")[0]).exists() for package in PACKAGES):
        run_command([*NPM_INSTALL, "--legacy-peer-deps", "--prefix", str(home), *PACKAGES])
    for source in sorted((*_SOURCES.iterdir(), *marks_by_hand.SOURCES.iterdir())):
        copied, path = home / source.name, folder / f"{source.stem}.js"
        shutil.copy(source, copied)  # beside the packages that it imports
        flags = [*(f"--loader:.{loader}" for loader in _LOADERS), *(f"--define:{word}" for word in _DEFINED)]
        run_command([str(bundler), str(copied), "--bundle", "--minify", "--jsx=transform", f"--outfile={path}", *flags])
        style = f"<link rel=stylesheet href={source.stem}.css>" if path.with_suffix(".css").exists() else ""
        html = f"<!doctype html><meta charset=utf-8><title>{source.stem}</title>{style}<div id=app></div>"
        (folder / f"{source.stem}.html").write_text(f"{html}<script src={source.stem}.js></script>", encoding="utf-8")


def _library(name: str, states: tuple[tuple[str, ...], ...], extra: str = "") -> App:
    return App(name, SERVE, tuple(AppState(f"/{name}.html", clicks) for clicks in states), extra=extra)


LIBRARIES = (
    _library(
        "antd",
        (
            *((), (".ant-select >> nth=0",), ("#born",), (".ant-picker-range",), (".ant-picker >> nth=2",)),
            *((".ant-cascader",), (".ant-tree-select",), (".ant-color-picker-trigger",), ("text=Data",)),
            *(("text=Data", ".ant-table-filter-trigger"), ("text=Data", ".ant-btn-dangerous >> nth=0")),
            *(("text=More",), ("text=More", "text=Open dialog")),
        ),
    ),
    _library(
        "mantine",
        (
            *((), ("input[readonly] >> nth=0",), ("text=Dates",), ("text=Dates", "text=Born")),
            *(("text=Dates", "text=Stay"), ("text=Dates", "text=When"), ("text=More",), ("text=More", "text=Menu")),
            *(("text=More", "text=Dialog"), ("text=Board",)),
        ),
        extra="[data-rfd-draggable-id]",
    ),
    _library(
        "element",
        (
            *((), (".el-select >> nth=0",), (".el-date-editor >> nth=0",), (".el-date-editor--daterange",)),
            *((".el-date-editor--time",), (".el-cascader",), (".el-color-picker",), ("text=Data",)),
            *(("text=Data", ".el-table__column-filter-trigger"), ("text=More",), ("text=More", "text=Dialog")),
        ),
        extra=".el-time-spinner__item,.el-calendar-table td,.el-table__header th",
    ),
    _library(
        "reactflow",
        ((), ("text=Work",)),
        extra=".react-flow__node,.react-flow__handle,.react-flow__pane,.react-flow__minimap",
    ),
    _library(
        "handsontable",
        ((), ("td:has-text('Oslo') >> nth=0",), ("td:has-text('Person 1') >> nth=0",)),
        extra="td:not(:has(input))",
    ),
)
