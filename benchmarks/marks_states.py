"""The applications whose marks are measured, and the states of them that are looked at."""

from __future__ import annotations

from benchmarks.marks_apps import App, AppState
from benchmarks.marks_aside import ASIDE

SERVE = ("{python}", "-m", "http.server", "{port}", "--bind", "127.0.0.1", "--directory", "{folder}")
_USERS = "/admin/auth/user/"
DATASETTE = App(
    "datasette",
    ("{python}", "-m", "datasette", "{folder}/data.db", "--port", "{port}"),
    (
        AppState("/"),
        AppState("/data"),
        AppState("/data/people"),
        AppState("/data/people", ("th .dropdown-menu-icon",)),
        AppState("/data/people", scroll=600),
        AppState("/data/people?_facet=city&age__gt=70"),
        AppState("/data/people/1"),
        AppState("/data?sql=select+*+from+people"),
    ),
)
DJANGO = App(
    "django-admin",
    ("{python}", "{folder}/admin.py", "runserver", "--noreload", "{port}"),
    (
        AppState("/admin/"), AppState(_USERS), AppState(f"{_USERS}?q=user1&is_staff__exact=1"),
        AppState(f"{_USERS}add/"), AppState(f"{_USERS}1/change/"), AppState(f"{_USERS}1/change/", scroll=700),
        AppState(f"{_USERS}1/password/"), AppState(f"{_USERS}2/delete/"), AppState(f"{_USERS}1/history/"),
        AppState("/admin/auth/group/"), AppState("/admin/auth/group/add/"), AppState("/admin/password_change/"),
    ),
)  # fmt: skip
JUPYTERLAB = App(
    "jupyterlab",
    (
        "{python}", "-m", "jupyterlab", "--allow-root", "--no-browser", "--port={port}",
        "--IdentityProvider.token=", "--ServerApp.root_dir={folder}", "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ),
    (
        AppState("/lab?reset"),
        AppState("/lab?reset", ("text=File",)),
        AppState("/lab?reset", ("text=Settings",)),
        AppState("/lab?reset", ("text=Help",)),
        AppState("/lab?reset", menu=".jp-DirListing-item >> nth=0"),
        AppState("/lab?reset", keys=("Control+Shift+C",)),
        AppState("/lab?reset", ("[data-id=jp-running-sessions]",)),
        AppState("/lab?reset", keys=("Control+,",)),
        AppState("/lab/tree/note.ipynb"),
        AppState("/lab/tree/note.ipynb", (".jp-Cell .cm-content",), keys=("Control+f",)),
    ),
    extra=".jp-DirListing-item,.jp-DirListing-headerItem,.lm-Menu-item:not([data-type=separator]),.jp-Collapser-child,"
    ".lm-CommandPalette-item",
)  # fmt: skip
SQLITE_WEB = App(
    "sqlite-web",
    ("{folder}/venv/bin/sqlite_web", "-x", "-p", "{port}", "{folder}/data.db"),
    (
        AppState("/"), AppState("/query/"), AppState("/people/"), AppState("/people/content/"),
        AppState("/people/content/", scroll=900), AppState("/people/insert/"), AppState("/people/query/"),
        AppState("/people/add-column/"), AppState("/people/drop-column/"), AppState("/people/add-index/"),
        AppState("/people/export/"), AppState("/people/import/"),
    ),
)  # fmt: skip
SWAGGER = App(
    "swagger-ui",
    SERVE,
    (
        AppState("/swagger.html"),
        AppState("/swagger.html", (".opblock-summary >> nth=0",)),
        AppState("/swagger.html", (".opblock-summary >> nth=0", ".try-out__btn")),
        AppState("/swagger.html", (".opblock-tag >> nth=1",)),
        AppState("/swagger.html", (".authorize",)),
    ),
)
REDOC = App(
    "redoc",
    SERVE,
    (
        AppState("/redoc.html"),
        AppState("/redoc.html", scroll=500),
        AppState("/redoc.html", ("li label >> nth=0",)),
        AppState("/redoc.html", ("input[type=text] >> nth=0",), keys=("o", "r", "d")),
    ),
)
SHOELACE = App(
    "shoelace",
    SERVE,
    (
        AppState("/shoelace.html"),
        AppState("/shoelace.html", ("sl-select",)),
        AppState("/shoelace.html", ("#open",)),
        AppState("/shoelace.html", ("sl-details", "sl-tab >> nth=1")),
        AppState("/shoelace.html", ("sl-dropdown sl-button",)),
    ),
)
MONACO = App(
    "monaco",
    SERVE,
    (
        AppState("/monaco.html"),
        AppState("/monaco.html", (".monaco-editor .view-line",)),
        AppState("/monaco.html", (".monaco-editor .view-line",), keys=("Control+f",)),
        AppState("/monaco.html", (".monaco-editor .view-line",), keys=("F1",)),
        AppState("/monaco.html", menu=".monaco-editor .view-line"),
    ),
)
DRAWFLOW = App(
    "drawflow",
    SERVE,
    (AppState("/drawflow.html"), AppState("/drawflow.html", menu=".drawflow-node >> nth=0")),
    extra="#d,.drawflow-node,.input,.output,.drawflow-delete,.main-path",
)
TABULATOR = App(
    "tabulator",
    SERVE,
    (
        AppState("/tabulator.html"),
        AppState("/tabulator.html", (".tabulator-cell[tabulator-field=name] >> nth=0",)),
        AppState("/tabulator.html", (".tabulator-page >> nth=3",), scroll=300),
    ),
    extra=".tabulator-sortable,.tabulator-editable,.tabulator-selectable",
)
CALENDAR = App(
    "fullcalendar",
    SERVE,
    (
        AppState("/fullcalendar.html"),
        AppState("/fullcalendar.html", (".fc-timeGridWeek-button",)),
        AppState("/fullcalendar.html", (".fc-listMonth-button",)),
        AppState("/fullcalendar.html", (".fc-daygrid-more-link",)),
    ),
    extra=".fc-event",
)
TIDDLYWIKI = App(
    "tiddlywiki",
    (
        "node", "{folder}/node_modules/tiddlywiki/tiddlywiki.js", "{folder}/wiki", "--listen", "port={port}",
        "host=127.0.0.1",
    ),
    (
        AppState("/"),
        AppState("/", ("[aria-label='new tiddler']",)),
        AppState("/", ("[aria-label='control panel']",)),
        AppState("/", ("[aria-label=more] >> nth=0",)),
        AppState("/", ("button:text-is('Tools')",)),
        AppState("/", ("[aria-label='advanced search']",)),
    ),
)  # fmt: skip
NODE_RED = App(
    "node-red",
    ("node", "{folder}/node_modules/node-red/red.js", "--port", "{port}", "--userDir", "{folder}/red"),
    (
        AppState("/"),
        AppState("/", ("#red-ui-header-button-sidemenu",)),
        AppState("/", ("#red-ui-header-button-deploy-options",)),
        AppState("/", (".red-ui-tab-link-button >> nth=0",)),
        AppState("/", keys=("Control+Shift+p",)),
        AppState("/", ("#red-ui-header-button-sidemenu", "text=Settings")),
    ),
    extra=".red-ui-flow-node,.red-ui-flow-port,.red-ui-palette-node,.red-ui-flow-node-button,.red-ui-editableList-item-content",
)
AG_GRID = App(
    "ag-grid",
    SERVE,
    (
        AppState("/aggrid.html"),
        AppState("/aggrid.html", (".ag-header-cell[col-id=age] .ag-header-cell-text",)),
        AppState("/aggrid.html", (".ag-header-cell[col-id=name] .ag-header-cell-filter-button",)),
        AppState("/aggrid.html", (".ag-cell[col-id=name] >> nth=0",)),
        AppState("/aggrid.html", (".ag-paging-button[aria-label='Next Page']",), scroll=200),
    ),
    extra=".ag-cell[col-id=name],.ag-cell[col-id=age]",
)
TINYMCE = App(
    "tinymce",
    SERVE,
    (
        AppState("/tinymce.html"),
        AppState("/tinymce.html", (".tox-mbtn:has-text('Edit')",)),
        AppState("/tinymce.html", (".tox-mbtn:has-text('Format')",)),
        AppState("/tinymce.html", (".tox-mbtn:has-text('Insert')", "[role=menuitem]:has-text('Link')")),
        AppState("/tinymce.html", (".tox-mbtn:has-text('Edit')", "[role=menuitem]:has-text('Find')")),
    ),
)
MARIMO = App(
    "marimo",
    (
        *("{python}", "-m", "marimo", "-y", "edit", "{folder}/book.py", "--headless", "--no-token", "--port", "{port}"),
        "--skip-update-check",
    ),
    (
        AppState("/"),
        AppState("/", ("[data-testid=notebook-menu-dropdown]",)),
        AppState("/", keys=("Control+k",)),
        AppState("/", scroll=600),
        AppState("/", (".cm-content >> nth=0",), keys=("Control+f",)),
    ),
    extra=".cm-foldGutter",
)
APPS = (
    *(DATASETTE, DJANGO, JUPYTERLAB, SQLITE_WEB, SWAGGER, REDOC, SHOELACE, MONACO, DRAWFLOW, TABULATOR, CALENDAR),
    *(TIDDLYWIKI, NODE_RED),
    *(AG_GRID, TINYMCE, MARIMO),
    *ASIDE,
)
