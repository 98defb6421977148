"""The `berth` command. A composition root: it puts things together and decides nothing.

Each command imports what it needs when it runs, so that `berth --help` and the small ones are quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from app.admin import admin
from app.settings import Settings, WrongSettings, load_settings

app = typer.Typer(
    help="Berth: book GPUs for a time.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
app.add_typer(admin, name="admin")

Port = Annotated[int | None, typer.Option(help="The pages' port; 8000 unless said, 0 for any free one.")]
Data = Annotated[Path | None, typer.Option(help="Folder of the embedded servers and keys; ./var unless said.")]
Host = Annotated[str | None, typer.Option(help="The address to listen on; 127.0.0.1 unless said.")]


def main() -> None:
    """The console script."""
    app(prog_name="berth")


@app.command()
def up(port: Port = None, data: Data = None, host: Host = None) -> None:
    """Start everything: database and broker (unless named by addresses), migrations, pages, workers, beat."""
    from app.plumbing.up import Refusal, Up

    settings = _settings(port=port, data=data, host=host)
    try:
        with Up(settings) as running:
            settings = running.start_servers()
            running.start_programs("web")  # first: on a small machine the others would keep the pages waiting
            people = _furnish(str(settings.database_owner_url))
            running.wait_until_answering()
            running.start_programs("backend", "tasks", "beat")
            running.say(f"Berth answers at {settings.address}/ (data in {settings.data}); Ctrl-C stops it")
            if not people:
                running.say(
                    "nobody can sign in yet: `berth admin create-operator` makes the first (docs/first-set-up.md)"
                )
            running.watch()
    except Refusal as refusal:
        _refuse(str(refusal))


@app.command()
def demo(
    port: Port = None,
    data: Data = None,
    host: Host = None,
    check: Annotated[bool, typer.Option("--check", help="Walk a newcomer's way through the demo on --data.")] = False,
) -> None:
    """Everything that `up` starts, with a small company in it that has a month of bookings behind it."""
    from app.plumbing.up import Refusal

    settings = _settings(port=port, data=data, host=host)
    if check:
        from app.demo.check import walk

        raise SystemExit(walk(settings.data))
    from app.demo.run import run

    try:
        run(settings)
    except Refusal as refusal:
        _refuse(str(refusal))


@app.command("demo-history", hidden=True)
def demo_history() -> None:
    """The part of `demo` that lives the month; started by it."""
    from app.demo.run import live_history
    from app.plumbing.log import configure_logging

    settings = _settings()
    configure_logging(json=settings.log == "json", level="WARNING", instants=settings.log_instants)
    live_history(settings)


@app.command()
def web(
    port: Port = None,
    host: Host = None,
    fd: Annotated[int | None, typer.Option(hidden=True, help="A socket that listens already.")] = None,
) -> None:
    """Serve the pages and the API; DATABASE_URL and REDIS_URL say from where."""
    import socket

    import uvicorn

    from app.main import create_app
    from app.plumbing.db import DangerousRole
    from app.plumbing.log import configure_logging
    from app.web.serving import server_config

    settings = _settings(port=port, host=host)
    configure_logging(json=settings.log == "json", level=settings.log_level, instants=settings.log_instants)
    try:
        application = create_app(settings)
    except (WrongSettings, DangerousRole) as error:
        _refuse(str(error))
    config = server_config(application, settings)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=fd)] if fd is not None else None)


@app.command()
def worker(
    queue: Annotated[str, typer.Argument(help="backend: calls to clusters; default: everything else.")],
    concurrency: Annotated[int | None, typer.Option(help="Threads; 8 for backend, 2 for default.")] = None,
) -> None:
    """Work off one queue, with threads: a hanging cluster holds two of them and nobody else up."""
    if queue not in ("backend", "default"):
        _refuse(f"There is no queue {queue}: backend or default.")
    _refuse_dangerous_role(_settings())
    threads = concurrency or (8 if queue == "backend" else 2)
    _become_celery(
        *("worker", "--queues", queue, "--pool", "threads", "--concurrency", str(threads)),
        *("--hostname", f"{queue}@%h", "--without-gossip", "--without-mingle", "--without-heartbeat"),
    )


@app.command()
def beat() -> None:
    """Send what the timetable says; one of these runs, never two."""
    from app.plumbing.up import schedule_file

    settings = _settings()
    _become_celery("beat", "--schedule", str(schedule_file(settings.data)), "--pidfile=")


@app.command()
def migrate() -> None:
    """Bring the database of DATABASE_OWNER_URL up to date."""
    from app.plumbing.migrate import upgrade

    settings = _settings()
    if not settings.database_owner_url:
        _refuse("DATABASE_OWNER_URL is not set: migrations run as the tables' owner.")
    upgrade(settings.database_owner_url)
    _furnish(settings.database_owner_url)
    typer.echo("The database is up to date.")


def _furnish(owner_url: str) -> bool:
    """Give an installation what it has before anybody comes: its id, and the catalogue of accelerators. Can be repeated.

    Answers whether there is anybody.
    """
    from app.inventory.actions import load_catalogue, make_installation
    from app.kernel.clock import wall_now
    from app.plumbing.db import Database, make_engine

    database = Database(make_engine(owner_url), wall_now)
    try:
        with database.work() as work:
            make_installation(work)
            load_catalogue(work)
            return work.pg.execute("SELECT FROM accounts LIMIT 1").rowcount == 1
    finally:
        database.close()


def _settings(**values: Any) -> Settings:
    try:
        return load_settings(**values)
    except WrongSettings as error:
        _refuse(str(error))


def _refuse_dangerous_role(settings: Settings) -> None:
    import psycopg

    from app.plumbing.db import DangerousRole, refuse_dangerous_role

    if not settings.database_url or not settings.redis_url:
        _refuse("DATABASE_URL and REDIS_URL have to be set; `berth up` sets them for the embedded servers.")
    try:
        with psycopg.connect(settings.database_url, connect_timeout=10) as connection:
            refuse_dangerous_role(connection)
    except (DangerousRole, psycopg.Error) as error:
        _refuse(str(error))


def _become_celery(*words: str) -> NoReturn:
    import warnings

    from celery.__main__ import main as celery

    # our tasks take JSON alone, which is what makes a worker of root's harmless in a container or a demo
    warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")
    sys.argv = ["celery", "--app", "workers.celery_app", "--quiet", *words]
    celery()
    raise SystemExit(0)


def _refuse(sentence: str) -> NoReturn:
    """One sentence and exit code 1; never a traceback for what a person can mend."""
    typer.echo(f"berth: {sentence}", err=True)
    raise SystemExit(1)


if __name__ == "__main__":
    main()
