"""Serve Django's admin as an application with accounts, forms and a database: python serve.py PORT FOLDER.

Each value of the cookie `tenant` has a database of its own in FOLDER, a copy of `seed.sqlite3` that `desk.py` makes;
without the cookie it is `seed.sqlite3` itself. Needs `pip install django`.
"""

import os
import sys
import threading
from pathlib import Path

import django
from django.apps import AppConfig
from django.conf import settings
from names import NAMES

PORT, FOLDER = sys.argv[1], Path(sys.argv[2]).resolve()
TENANT, LOCK = threading.local(), threading.Lock()
APPS = ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles")
MIDDLEWARE = ("sessions.middleware.Session", "auth.middleware.Authentication", "messages.middleware.Message")
# The admin without its header: a page of a few elements suits the small window and the context of a small model.
BASE = """{% extends "admin/base.html" %}{% block title %}Desk{% endblock %}{% block header %}{% endblock %}
{% block nav-breadcrumbs %}{% endblock %}{% block extrastyle %}<style>
html {zoom: 0.375} .form-row {padding: 0 !important}
.help, .quiet, .historylink, #changelist-search [type=submit] {display: none !important}</style>{% endblock %}"""
CONTEXT = ("django.template.context_processors.request", "django.contrib.auth.context_processors.auth")


class Router:
    """Reads and writes the database of the current request's tenant."""

    def db_for_read(self, model, **hints):
        return getattr(TENANT, "name", "default")

    db_for_write = db_for_read

    def allow_relation(self, one, other, **hints):
        return True


def choose_tenant(get_response):
    """Middleware that chooses the database by the cookie."""
    from django.db import connections

    def respond(request):
        TENANT.name = name = request.COOKIES.get("tenant", "default")
        with LOCK:
            if name not in connections.settings:
                database = connections.settings["default"] | {"NAME": FOLDER / f"{Path(name).name}.sqlite3"}
                # A new mapping: other threads iterate over the old one after each response.
                connections.settings = connections.settings | {name: database}
        try:
            return get_response(request)
        finally:
            connections[name].close()

    return respond


class Desk(AppConfig):
    """This file as an application: the model of its tickets is below."""

    name, label = __name__, "desk"

    def import_models(self):
        super().import_models()
        self.models_module = sys.modules[__name__]


settings.configure(
    DEBUG=True,
    SECRET_KEY=os.environ.get("DESK_SECRET", "only for a machine without visitors, please"),
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    STATIC_URL="/static/",
    # A login is valid for every tenant: the session is in the cookie, not in the database.
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    DATABASE_ROUTERS=[Router()],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "seed.sqlite3"}},
    INSTALLED_APPS=[*(f"django.contrib.{name}" for name in APPS), f"{__name__}.Desk"],
    MIDDLEWARE=[f"{__name__}.choose_tenant", *(f"django.contrib.{name}Middleware" for name in MIDDLEWARE)],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "loaders": [
                    ("django.template.loaders.locmem.Loader", {"admin/base_site.html": BASE}),
                    "django.template.loaders.app_directories.Loader",
                ],
                "context_processors": [*CONTEXT, "django.contrib.messages.context_processors.messages"],
            },
        }
    ],
)
django.setup()

from django.contrib import admin  # noqa: E402  Django wants its settings first
from django.contrib.auth.admin import GroupAdmin, UserAdmin  # noqa: E402
from django.contrib.auth.models import Group, Permission, User  # noqa: E402
from django.core.files.storage import FileSystemStorage  # noqa: E402
from django.db import models  # noqa: E402
from django.urls import path  # noqa: E402


class Files(FileSystemStorage):
    """A folder of files for each tenant."""

    @property
    def location(self):
        return str(FOLDER / f"{TENANT.name}.files")


class Ticket(models.Model):
    """A ticket with an attached file; only the larger tasks are about them."""

    name = models.CharField(max_length=80)
    file = models.FileField(storage=Files(), blank=True)

    class Meta:
        app_label = Desk.label

    def __str__(self):
        return self.name


admin.site.enable_nav_sidebar = False


class Short:
    """Pages with little on them: a list shows what was searched for, a form has two buttons."""

    actions = None
    sortable_by = ()

    def get_search_results(self, request, queryset, search_term):
        if not search_term:
            return queryset.none(), False
        return super().get_search_results(request, queryset, search_term)

    def changeform_view(self, request, object_id=None, form_url="", extra_context=None):
        buttons = {"show_save_and_continue": False, "show_save_and_add_another": False}
        return super().changeform_view(request, object_id, form_url, buttons)


class Groups(Short, GroupAdmin):
    fields = ("name",)


class Users(Short, UserAdmin):
    list_display, list_filter = ("username",), ()
    fieldsets = ((None, {"fields": (("is_active", "is_staff"), "email", "first_name")}),)


class Tickets(Short, admin.ModelAdmin):
    search_fields = ("name",)


admin.site.unregister((Group, User))
admin.site.register(Ticket, Tickets)
admin.site.register(Group, Groups)
admin.site.register(User, Users)

urlpatterns = [path("", admin.site.urls)]


def fill() -> None:
    """Make the seed: an agent who may edit users and groups, an administrator, and what they manage."""
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0)
    if User.objects.exists():
        return
    User.objects.create_superuser("boss", "boss@desk.test", os.environ["DESK_BOSS"])
    agent = User.objects.create_user("amy", "amy@desk.test", os.environ["DESK_AGENT"], is_staff=True)
    agent.user_permissions.set(Permission.objects.filter(content_type__app_label__in=("auth", "desk")))
    for name in NAMES["users"]:
        User.objects.create(username=name, email=f"{name}@desk.test")
    Group.objects.bulk_create(Group(name=name) for name in NAMES["groups"])
    Ticket.objects.bulk_create(Ticket(name=name) for name in NAMES["tickets"])


if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    FOLDER.mkdir(parents=True, exist_ok=True)
    fill()
    execute_from_command_line([sys.argv[0], "runserver", "--noreload", f"127.0.0.1:{PORT}"])
