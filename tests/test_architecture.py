"""The house as docs say it: who may import whom, who reads the time, who writes a state, who calls a cluster.

Read from the sources, so that a door that opens the wrong way fails here and names the file.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("accounts", "inventory", "quotas", "pricing", "bookings", "usage", "billing",
         "sizing", "planning", "notices", "dashboards")  # fmt: skip
"""From left to right; a room may use those before it."""

WEB, ACTIONS, QUERIES, TABLES, PURE = 4, 3, 2, 1, 0
FLOOR_NAMES = {4: "api, pages", 3: "actions, reconcile", 2: "queries", 1: "tables", 0: "pure"}
OUTSIDE = ("sqlalchemy", "sqlmodel", "psycopg", "fastapi", "starlette", "celery", "redis", "jinja2", "httpx2",
           "authlib", "alembic", "pydantic", "kubernetes")  # fmt: skip
"""Libraries by which one tells the floor of a file; numpy and the standard library may be anywhere."""

LONGEST_FILE = 450
LONG_ONES = {
    "app.backends.contract": 600,  # one document for whoever writes a backend
    "app.backends.testing": 650,  # its test class, read beside it
    "app.bookings.actions": 700,
    "app.bookings.lifecycle": 550,  # one table
    "app.bookings.queries": 800,  # every statement of the heart
    "app.web.views.booking": 650,  # dataclasses only
}
"""Files that may be longer, and how long."""


CONNECTIONS = "app.inventory.connections"
"""From a cluster's row to its backend: for files called reconcile, and for the rounds that step the demo's clock."""

WALL_IN_SQL = {"app.bookings.due": "leases are on the wall clock, and everybody's wall clock is the database's"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def sources(folder: str) -> list[Path]:
    return sorted(p for p in (ROOT / folder).rglob("*.py") if "__pycache__" not in p.parts)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def imports(path: Path) -> set[str]:
    """Every module a file imports, by its full name, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                at = ROOT.joinpath(*inner.split("."))
                found.add(inner if at.with_suffix(".py").exists() or at.is_dir() else node.module or "")
    return found


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "app" and parts[1] in ROOMS else None


def file_of(module: str) -> str:
    """The part of a module's name that says its floor: `actions` of `app.bookings.actions`."""
    parts = module.split(".")
    return parts[2] if len(parts) > 2 else ""


def only_for_types(path: Path) -> frozenset[str]:
    """What is imported under TYPE_CHECKING alone: names, no doors, so they may point both ways within a floor."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            found |= {i.module for i in node.body if isinstance(i, ast.ImportFrom) and i.module}
    return frozenset(found)


@cache
def floor(module: str) -> int:
    """On which floor a room's file stands: by its name where the name says so, else by the libraries it uses."""
    file = file_of(module)
    if file.startswith(("api", "pages", "schemas")):
        return WEB if not file.startswith("schemas") else PURE
    if file.startswith(("actions", "reconcile")):
        return ACTIONS
    if file.startswith("queries"):
        return QUERIES
    if file.startswith("tables"):
        return TABLES
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    if not path.exists():
        return PURE
    used = imports(path) - only_for_types(path)
    heads = {name.split(".")[0] for name in used}
    if heads & {"fastapi", "starlette"} or any(n.startswith("app.web.") and n not in WORDS for n in used):
        return WEB
    inner = [floor(n) for n in used if room_of(n) and n != module and file_of(n)]
    own = ACTIONS if heads & {"httpx2", "authlib", "pwdlib"} else 0
    if any(n == "app.plumbing.db" or n == "psycopg" or n.startswith("psycopg.") for n in used):
        own = max(own, QUERIES)
    return min(max([own, *inner]), ACTIONS)


WORDS = {"app.web.words"}
"""The one wording of amounts and times: pure, used by whoever writes a sentence."""


def room_files() -> list[Path]:
    return [p for room in ROOMS for p in sources(f"app/{room}")]


def test_there_is_something_to_look_at() -> None:
    assert len(room_files()) > 20
    assert floor("app.bookings.lifecycle") == PURE
    assert floor("app.accounts.queries") == QUERIES
    assert floor("app.accounts.audit") == QUERIES
    assert floor("app.accounts.sessions") == ACTIONS


def test_the_kernel_knows_nothing_but_the_standard_library() -> None:
    for path in sources("app/kernel"):
        for module in imports(path):
            assert module.startswith("app.kernel") or module.split(".")[0] not in (
                *OUTSIDE,
                "app",
                "workers",
                "numpy",
            ), f"{name_of(path)} imports {module}"


def test_plumbing_knows_no_room() -> None:
    for path in sources("app/plumbing"):
        for module in imports(path):
            wrong = room_of(module) or module.startswith(("app.web", "app.main", "app.cli", "workers"))
            assert not wrong, f"{name_of(path)} imports {module}"


def test_the_app_never_imports_the_workers() -> None:
    for path in sources("app"):
        found = [m for m in imports(path) if m == "workers" or m.startswith("workers.")]
        if path.name == "main.py" and path.parent.name == "app":
            assert not found
        assert not found, f"{name_of(path)} imports {found}"


def test_only_composition_roots_know_main_and_cli() -> None:
    for path in sources("app"):
        for module in imports(path):
            if module in ("app.main", "app.cli"):
                assert path.parent.name == "app" or path.parts[-2] == "cli", f"{name_of(path)} imports {module}"


def test_the_web_knows_accounts_and_no_other_room() -> None:
    for path in sources("app/web"):
        rooms = {room_of(m) for m in imports(path)} - {None}
        allowed = {"accounts"} if path.name in ("deps.py", "page.py") else set()
        assert rooms <= allowed, f"{name_of(path)} knows {rooms - allowed}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_uses_only_those_to_its_left(room: str) -> None:
    for path in sources(f"app/{room}"):
        for module in imports(path):
            other = room_of(module)
            if other is None or other == room:
                continue
            assert ROOMS.index(other) < ROOMS.index(room), f"{name_of(path)} imports {module}: not to its left"
            assert not file_of(module).startswith(("api", "pages", "reconcile")), (
                f"{name_of(path)} imports {module}: another room is used through its actions, queries or pure files"
            )


@pytest.mark.parametrize("path", room_files(), ids=name_of)
def test_imports_go_down_only(path: Path) -> None:
    here, module = floor(name_of(path)), name_of(path)
    used = imports(path)
    for other in used:
        if room_of(other) and file_of(other) and other != module:
            assert floor(other) <= here, f"{module} ({FLOOR_NAMES[here]}) imports {other} ({FLOOR_NAMES[floor(other)]})"
    heads = {name.split(".")[0] for name in used}
    if here < WEB:
        assert not heads & {"fastapi", "starlette", "jinja2"}, f"{module} knows HTTP or HTML"
        assert not {m for m in used if m.startswith("app.web") and m not in WORDS}, f"{module} knows the web"
    assert "celery" not in heads, f"{module} knows Celery; tasks are sent by name"
    if file_of(module).startswith(("rules", "lifecycle", "placement", "earliest", "capacity", "domains")):
        assert not heads & set(OUTSIDE), f"{module} is pure and imports {heads & set(OUTSIDE)}"
        assert not [m for m in used if m.startswith("app.plumbing")], f"{module} is pure and knows the plumbing"


def test_only_the_clock_reads_the_time() -> None:
    forbidden = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"),
                 ("time", "time"), ("time", "time_ns"), ("time", "localtime"), ("time", "gmtime")}  # fmt: skip
    for path in sources("app") + sources("workers"):
        if name_of(path) == "app.kernel.clock":
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Attribute):
                owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", None)
                assert (owner, node.attr) not in forbidden, f"{name_of(path)}:{node.lineno} reads the time"
            if isinstance(node, ast.ImportFrom) and node.module == "time":
                names = {alias.name for alias in node.names}
                assert not names & {"time", "time_ns", "localtime", "gmtime"}, f"{name_of(path)} reads the time"


def test_only_the_product_clock_decides_in_sql() -> None:
    """`now()` and its kin are the transaction's start or the machine's time: neither decides anything here."""
    wrong = re.compile(
        r"\b(now|clock_timestamp|transaction_timestamp|statement_timestamp)\(\)|\bcurrent_(timestamp|date)\b", re.I
    )
    for path in room_files() + sources("app/plumbing"):
        if name_of(path) in WALL_IN_SQL:
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "SELECT" in node.value.upper():
                found = wrong.search(node.value.replace("berth_now()", ""))
                assert not found, f"{name_of(path)}:{node.lineno} asks {found and found[0]}"


def test_only_advance_writes_a_bookings_state() -> None:
    writes = re.compile(r"UPDATE\s+bookings\b[^;]*?\bSET\b[^;]*?\bstate\s*=", re.I | re.S)
    for path in sources("app") + sources("workers"):
        for function in [
            n for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module)
        ]:
            for node in ast.iter_child_nodes(function) if isinstance(function, ast.Module) else ast.walk(function):
                if isinstance(function, ast.Module) and isinstance(node, ast.FunctionDef | ast.ClassDef):
                    continue
                for text in [
                    n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
                ]:
                    if writes.search(text):
                        where = name_of(path), getattr(function, "name", "module")
                        assert where in {("app.bookings.queries", "advance"), ("app.bookings.queries", "module")}, (
                            f"{where[0]}.{where[1]} writes the state of a booking: only advance() does"
                        )


def test_backends_know_the_contract_and_the_kernel_alone() -> None:
    for path in sources("app/backends"):
        module = name_of(path)
        concrete = len(path.relative_to(ROOT / "app" / "backends").parts) > 1
        for other in imports(path):
            if not other.startswith(("app.", "workers")) or other == module:
                continue
            own = concrete and other.startswith(".".join(module.split(".")[:3]))
            allowed = other.startswith(("app.kernel", "app.backends.contract")) or own
            if not concrete and path.name in ("registry.py", "testing.py", "__init__.py"):
                allowed = allowed or other.startswith("app.backends")
            assert allowed, f"{module} imports {other}: a backend gets no session, no settings, no queue"


def test_only_reconcile_calls_backends() -> None:
    """Everybody may name the contract's frozen values; the registry, by which one gets a backend, is for few."""
    for path in sources("app") + sources("workers"):
        module = name_of(path)
        if module.startswith("app.backends") or path.parent.name == "workers" or module.split(".")[1:2] == ["cli"]:
            continue
        for other in imports(path):
            hands_out = other.startswith("app.backends") and other != "app.backends.contract"
            if not hands_out and other != CONNECTIONS:
                continue
            allowed = file_of(module).startswith("reconcile") or module in (
                "app.main",
                "app.plumbing.runtime",
                CONNECTIONS,
            )
            allowed = allowed or module.startswith(("app.demo", "app.rounds"))
            assert allowed, f"{module} imports {other}: only files called reconcile call backends"


def test_only_settings_reads_the_environment() -> None:
    """Children are handed their environment, so who starts one may copy it; nobody else looks."""
    starters = {"app.settings", "app.plumbing.embedded", "app.plumbing.child"}
    for path in sources("app") + sources("workers"):
        module = name_of(path)
        if module in starters or module.split(".")[1:2] in (["cli"], ["up"], ["demo"]):
            continue
        for node in ast.walk(tree(path)):
            read = isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb")
            assert not read, f"{module}:{node.lineno} reads the environment"


def test_no_file_hides_a_missing_noun() -> None:
    lengths = {name_of(p): len(p.read_text(encoding="utf-8").splitlines()) for p in sources("app") + sources("workers")}
    long = {name: n for name, n in lengths.items() if n > LONG_ONES.get(name, LONGEST_FILE)}
    assert not long, f"longer than {LONGEST_FILE} lines, or than what is said of them: {long}"


def test_no_drawer_for_everything() -> None:
    for path in sources("app") + sources("workers"):
        assert path.stem not in ("utils", "util", "helpers", "helper", "manager", "common", "misc"), name_of(path)


def test_every_file_says_what_it_is_for() -> None:
    for path in sources("app") + sources("workers"):
        if path.read_text().strip():
            assert ast.get_docstring(tree(path)), f"{name_of(path)} has no docstring"


def test_no_template_carries_script_or_style() -> None:
    inline = re.compile(r"<style\b|\sstyle\s*=|<script(?![^>]*\bsrc=)[^>]*>|\son[a-z]+\s*=\s*[\"']|javascript:", re.I)
    for path in sorted((ROOT / "templates").rglob("*.html")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            data = re.sub(r'<script[^>]*type="application/json"[^>]*>', "", line)
            assert not inline.search(data), f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"


def test_alembic_is_not_shadowed() -> None:
    assert not (ROOT / "alembic" / "__init__.py").exists()
