"""What commands ask and say at a terminal: passwords, settings that are wrong, one sentence instead of a traceback."""

from __future__ import annotations

import os
import pwd
import sys
from typing import Any, NoReturn

import typer

from app.settings import Settings, WrongSettings, load_settings


def ask_password(generate: bool) -> str:
    """Asked for twice at a terminal, else one line of standard input."""
    if generate:
        from app.accounts.secrets import new_password

        return new_password()
    if sys.stdin.isatty():
        return typer.prompt("Password (10 characters or more)", hide_input=True, confirmation_prompt="Once more")
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        refuse("There is no terminal to ask for a password: give it as a line on standard input, or say --generate.")
    return password


def terminal_user() -> str:
    """The name of whoever sits there, for the audit."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in some containers nobody has this number
        return f"user {os.getuid()}"


def settings_or_say(**values: Any) -> Settings:
    """The settings, or one sentence about what is wrong with them."""
    try:
        return load_settings(**values)
    except WrongSettings as error:
        refuse(str(error))


def refuse(sentence: str) -> NoReturn:
    """One sentence and exit code 1; never a traceback for what a person can mend."""
    typer.echo(f"berth: {sentence}", err=True)
    raise SystemExit(1)
