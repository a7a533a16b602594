"""How the tasks of the help desk are set up, done and checked: all code that a site of one's own needs."""

import os
import shutil
import sqlite3
import uuid
from pathlib import Path

from webgym_cli.environments.sites import expert, setup
from webgym_cli.scoring import check

FOLDER = Path(os.environ.get("DESK_FOLDER", "tenants"))


@setup("desk")
def copy_database(context):
    """Give the episode a database of its own."""
    tenant = uuid.uuid4().hex  # of two runs at once, too
    shutil.copyfile(FOLDER / "seed.sqlite3", FOLDER / f"{tenant}.sqlite3")
    return {"cookies": [{"name": "tenant", "value": tenant}], "state": {"tenant": tenant}}


def read(tenant, table):
    with sqlite3.connect(FOLDER / f"{tenant}.sqlite3") as database:
        database.row_factory = sqlite3.Row
        key = "username" if table == "auth_user" else "name"
        return {row[key]: dict(row) for row in database.execute(f"SELECT * FROM {table}")}


@check("user")
def user(context, name, field, value, table="auth_user"):
    """1 if the field of the user, or of a row of another table, has the value and no other has changed."""
    before, after = (read(tenant, table) for tenant in ("seed", context.state["tenant"]))
    others = sum(after.get(other) != before[other] for other in before if other not in (name, "amy", "boss"))
    return {"reward": float(str(after[name][field]) == str(value) and not others), "others_changed": others}


@check("groups")
def groups(context, gone="", made="", table="auth_group"):
    """1 if the groups, or another table's rows, are those of the seed without `gone` and with `made`."""
    wanted = {*read("seed", table)} - {gone} | {made}
    return float({*read(context.state["tenant"], table)} == wanted - {""})


@check("told")
def told(context, name, field, table="auth_user"):
    """1 if the answer is what the row's field holds in the episode's database."""
    return float((context.answer or "").strip() == str(read(context.state["tenant"], table)[name][field]))


@check("found")
def found(context, name):
    """1 if the last page is the list of what was searched for."""
    return float(context.url.endswith(f"?q={name}"))


@expert("desk")
def work(page, todo, name="", label="", value="", gone="", made=""):
    """Do the task as a person does: search for the entry, open it, change it, save (Enter in a field saves too)."""
    if todo == "add":
        yield page.click("Add group", "link")
    elif todo != "name":
        yield page.type("Search", f"{gone or name}\n")
        if todo == "find":
            return
        yield page.click(gone or name, "link")
    if todo == "ask":
        yield page.answer(value)
        return
    if todo == "delete":
        yield page.click("Delete", "link")
        yield page.click("Yes, I’m sure", "button")
        return
    if todo in ("tick", "attach"):
        yield page.click(label) if todo == "tick" else page.upload(label, value)
        yield page.click("Save", "button")
    else:
        yield page.type(label, f"{value or made}\n")
