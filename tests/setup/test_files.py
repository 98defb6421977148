"""The files that set-up and deployment read say what they promise."""

import itertools
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from app.cli import app

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["runtime", "dev", "lock"])
def test_every_python_package_is_pinned_and_hashed_and_no_registry_is_named(name):
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    entries = re.findall(r"^[^ #\n].*(?:\n .*)*", text, re.MULTILINE)
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9.-]+==[\w.]+ ", entry), entry
        assert "--hash=sha256:" in entry
    assert "://" not in text
    assert "--index-url" not in text


def test_what_runs_is_part_of_what_is_tested_with():
    runtime, dev = (
        {
            line.split()[0]
            for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
            if "==" in line and line[0] not in "# "
        }
        for name in ("runtime", "dev")
    )
    assert runtime <= dev


def test_front_end_packages_have_exact_versions_and_digests():
    package = json.loads((ROOT / "package.json").read_text())
    versions = package["dependencies"] | package["devDependencies"]
    vendor = json.loads((ROOT / "deploy" / "vendor.json").read_text())
    assert versions.keys() == vendor.keys()
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions.values())
    assert all(entry["integrity"].startswith("sha512-") for entry in vendor.values())
    # what only tests need is not served
    assert all(vendor[name]["to"].startswith("tests/") for name in package["devDependencies"])
    for entry in vendor.values():
        for place in entry["files"].values():
            assert (ROOT / entry["to"] / place).exists()


def compose() -> dict:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def test_compose_starts_commands_that_exist():
    commands = get_command(app).commands
    for name, service in compose()["services"].items():
        command = service.get("command", [])
        lines = shlex.split(command[2]) if command[:2] == ["sh", "-c"] else command
        for program, verb in itertools.pairwise(lines):
            if program == "berth":
                assert verb in commands, f"{name}: berth {verb}"


def test_compose_tells_the_owner_to_migrations_alone_and_commits_no_secret():
    services = compose()["services"]
    assert {name for name, one in services.items() if "DATABASE_OWNER_URL" in one.get("environment", {})} == {"migrate"}
    assert {name for name, one in services.items() if "SUPERUSER_URL" in one.get("environment", {})} == {"migrate"}
    for service in services.values():
        for key, value in service.get("environment", {}).items():
            if "PASSWORD" in key or "SECRET" in key or key.endswith("_URL"):
                assert re.search(r"\$\{[A-Z_]+:\?\}", value), key
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))
    # everything of ours waits for the tables
    for name in ("web", "backend", "tasks", "beat"):
        assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
