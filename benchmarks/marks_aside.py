"""Applications that no rule for marks was mended by: they show how the marks do on pages that nobody here has seen."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.marks_apps import App, AppState

PACKAGES = ("streamlit~=1.50", "gradio~=6.0", "nicegui~=3.0", "wagtail~=8.0")
_STREAMLIT = """import pandas as pd
import streamlit as st

st.title("Orders")
form, table, more = st.tabs(["Form", "Table", "More"])
with form:
    with st.form("order"):
        st.text_input("Name"), st.number_input("Amount"), st.slider("Size", 0, 10)
        st.selectbox("Kind", ["red", "blue"])
        st.checkbox("Urgent"), st.radio("Way", ["air", "sea"]), st.date_input("Day"), st.form_submit_button("Send")
    st.multiselect("Tags", ["x", "y", "z"]), st.toggle("Live"), st.file_uploader("File")
with table:
    st.data_editor(pd.DataFrame({"n": range(5), "ok": [True, False, True, False, True]}))
    st.dataframe(pd.DataFrame({"n": range(50)}))
with more:
    with st.expander("Details"):
        st.button("Deep")
    st.download_button("Get", "data"), st.link_button("Go", "https://example.com"), st.color_picker("Colour")
    st.feedback("stars"), st.pills("P", ["one", "two"]), st.segmented_control("S", ["l", "m"])
with st.sidebar:
    st.text_area("Notes"), st.time_input("When"), st.popover("Pop").button("Inside")
"""
_GRADIO = """import sys

import gradio as gr

with gr.Blocks() as demo:
    with gr.Tab("One"):
        name, size = gr.Textbox(label="Name"), gr.Slider(0, 10, label="Size")
        gr.Dropdown(["red", "blue"], label="Kind"), gr.Dropdown(["x", "y"], multiselect=True, label="Tags")
        gr.Checkbox(label="Urgent"), gr.CheckboxGroup(["a", "b"], label="G"), gr.Radio(["air", "sea"], label="Way")
        gr.Button("Send").click(lambda text: text, name, name)
    with gr.Tab("Two"):
        gr.Dataframe([[1, 2], [3, 4]]), gr.Chatbot(), gr.File(), gr.Image(), gr.ColorPicker(), gr.DateTime()
        with gr.Accordion("More", open=False):
            gr.Number(label="N")
demo.launch(server_name="127.0.0.1", server_port=int(sys.argv[1]))
"""
_NICEGUI = """import sys

from nicegui import ui

with ui.header():
    ui.button(icon="menu"), ui.link("Docs", "#")
with ui.left_drawer(), ui.list():
    ui.item("Inbox", on_click=lambda: ui.notify("x")), ui.item("Sent", on_click=lambda: ui.notify("x"))
with ui.tabs() as tabs:
    one, two = ui.tab("One"), ui.tab("Two")
with ui.tab_panels(tabs, value=one):
    with ui.tab_panel(one):
        ui.input("Name"), ui.number("Amount"), ui.select(["red", "blue"], label="Kind", value="red")
        ui.select(["x", "y"], multiple=True, label="Tags"), ui.checkbox("Urgent"), ui.switch("Live")
        ui.radio(["air", "sea"]), ui.slider(min=0, max=10)
        ui.toggle(["l", "m"]), ui.rating(value=2), ui.date_input("Day"), ui.upload()
        with ui.expansion("More"):
            ui.button("Deep")
    with ui.tab_panel(two):
        columns = [{"name": "n", "label": "N", "field": "n", "sortable": True}]
        ui.table(columns=columns, rows=[{"n": n} for n in range(9)], row_key="n", selection="multiple", pagination=4)
        ui.tree([{"id": "a", "children": [{"id": "b"}, {"id": "c"}]}], label_key="id"), ui.editor(), ui.color_input("C")
        ui.knob(0.3), ui.chip("Tag", removable=True)
with ui.dialog() as dialog, ui.card():
    ui.label("Sure?"), ui.button("Yes"), ui.button("No", on_click=dialog.close)
ui.button("Open", on_click=dialog.open)
with ui.button("Menu"), ui.menu():
    ui.menu_item("First"), ui.menu_item("Second")
ui.run(host="127.0.0.1", port=int(sys.argv[1]), show=False, reload=False)
"""
# Whoever comes is the administrator.
_LOGIN = """from django.contrib.auth import get_user_model, login


class Login:
    def __init__(self, answer):
        self.answer = answer

    def __call__(self, request):
        if not request.user.is_authenticated:
            user, _ = get_user_model().objects.get_or_create(username="a", is_superuser=True, is_staff=True)
            login(request, user, backend="django.contrib.auth.backends.ModelBackend")
        return self.answer(request)
"""


def install_aside(python: Path, folder: Path) -> None:
    """Install the applications into the environment of `python`, and what they show into a folder."""
    if not (python.parent / "wagtail").exists():
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True, capture_output=True)
    for name, text in (("streamlit_app.py", _STREAMLIT), ("gradio_app.py", _GRADIO), ("nicegui_app.py", _NICEGUI)):
        (folder / name).write_text(text, encoding="utf-8")
    cms = folder / "cms"
    if not cms.exists():
        cms.mkdir()
        subprocess.run([python.parent / "wagtail", "start", "cms", cms], check=True, capture_output=True)
        (cms / "cms" / "login.py").write_text(_LOGIN, encoding="utf-8")
        with (cms / "cms" / "settings" / "dev.py").open("a", encoding="utf-8") as settings:
            settings.write('\nMIDDLEWARE = [*MIDDLEWARE, "cms.login.Login"]\n')
        subprocess.run([python, cms / "manage.py", "migrate"], check=True, capture_output=True)


STREAMLIT = App(
    "streamlit",
    (
        *("{python}", "-m", "streamlit", "run", "{folder}/streamlit_app.py", "--server.port", "{port}"),
        *("--server.headless", "true", "--browser.gatherUsageStats", "false", "--server.address", "127.0.0.1"),
    ),
    (
        AppState("/"),
        AppState("/", ("[data-testid=stSelectbox] input",)),
        AppState("/", ("[data-testid=stTab] >> nth=1",)),
        AppState("/", ("[data-testid=stTab] >> nth=2",)),
        AppState("/", ("[data-testid=stMainMenuButton]",)),
        AppState("/", ("[data-testid=stPopover] button",)),
        AppState("/", scroll=500),
    ),
    is_aside=True,
)
GRADIO = App(
    "gradio",
    ("{python}", "{folder}/gradio_app.py", "{port}"),
    (
        AppState("/"), AppState("/", scroll=500), AppState("/", ("button[role=tab] >> nth=1",)),
        AppState("/", ("button[role=tab] >> nth=1",), scroll=500), AppState("/", ("footer button >> nth=0",)),
    ),
    is_aside=True,
)  # fmt: skip
NICEGUI = App(
    "nicegui",
    ("{python}", "{folder}/nicegui_app.py", "{port}"),
    (
        AppState("/"),
        AppState("/", scroll=500),
        AppState("/", ("[role=tab] >> nth=1",)),
        AppState("/", ("[role=tab] >> nth=1",), scroll=400),
        AppState("/", (".q-select >> nth=0",)),
        AppState("/", ("text=Open",)),
        AppState("/", ("text=Menu",)),
    ),
    is_aside=True,
)
WAGTAIL = App(
    "wagtail",
    ("{python}", "{folder}/cms/manage.py", "runserver", "--noreload", "{port}"),
    (
        AppState("/admin/"), AppState("/admin/pages/"), AppState("/admin/pages/3/edit/"),
        AppState("/admin/pages/3/add_subpage/"), AppState("/admin/images/"), AppState("/admin/images/add/"),
        AppState("/admin/users/"), AppState("/admin/reports/locked/"),
    ),
    is_aside=True,
)  # fmt: skip
ASIDE = (STREAMLIT, GRADIO, NICEGUI, WAGTAIL)
