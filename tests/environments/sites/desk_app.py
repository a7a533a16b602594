"""A small help desk, as somebody's own site: tickets in a sqlite database, one tenant an episode, a session cookie."""

import html
import sqlite3
import sys
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

SCHEMA = "CREATE TABLE IF NOT EXISTS tickets (tenant TEXT, id INTEGER, title TEXT, status TEXT)"


def make_handler(path: str) -> type[BaseHTTPRequestHandler]:
    class Desk(BaseHTTPRequestHandler):
        def query(self, sql: str, *values: object) -> list[tuple]:
            with sqlite3.connect(path, timeout=30) as database:
                return database.execute(sql, values).fetchall()

        @property
        def tenant(self) -> str:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get("tenant")
            return cookie.value if cookie else ""

        def page(self, title: str, body: str, status: int = 200) -> None:
            text = f"<!DOCTYPE html><title>{title}</title><h1>{title}</h1>{body}".encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path.startswith("/ticket/"):
                number = int(url.path.rpartition("/")[2])
                rows = self.query("SELECT title, status FROM tickets WHERE tenant = ? AND id = ?", self.tenant, number)
                if not rows:
                    self.page("No such ticket", "", 404)
                    return
                ((title, status),) = rows
                buttons = "".join(f"<button name=status value={s}>{s.title()}</button> " for s in ("closed", "urgent"))
                form = f"<p>Status: {status}</p><form method=post action='/ticket/{number}'>{buttons}</form>"
                self.page(f"Ticket {number}", f"<p>{html.escape(title)}</p>{form}<a href='/'>All tickets</a>")
                return
            words = parse_qs(url.query).get("q", [""])[0]
            rows = self.query(
                "SELECT id, title FROM tickets WHERE tenant = ? AND title LIKE ?", self.tenant, f"%{words}%"
            )
            form = f"<form><input name=q aria-label=Search value='{html.escape(words)}'><button>Find</button></form>"
            items = "".join(f"<li><a href='/ticket/{i}'>{html.escape(title)}</a></li>" for i, title in rows)
            self.page("Tickets", f"{form}<ul>{items}</ul>")

        def do_POST(self) -> None:
            number = int(self.path.rpartition("/")[2])
            form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
            changed = (form["status"][0], self.tenant, number)
            self.query("UPDATE tickets SET status = ? WHERE tenant = ? AND id = ?", *changed)
            self.send_response(303)
            self.send_header("Location", f"/ticket/{number}")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Desk


def serve(path: str, port: int = 0) -> ThreadingHTTPServer:
    """Return a server on a new database; the caller runs and closes it."""
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(SCHEMA)
    return ThreadingHTTPServer(("127.0.0.1", port), make_handler(path))


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2])).serve_forever()
