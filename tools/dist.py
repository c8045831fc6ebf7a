"""`make dist`: builds what is published, twice, and tries it as somebody who installs it would; says what is missing.

Every step prints what it shows. Ends with 1 where something that was built is not fit to be published.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
BIN = Path(sys.executable).parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def say(text: str) -> None:
    print(f"make dist: {text}", flush=True)


def run(*command: object, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"make dist: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def build_environment() -> dict[str, str]:
    """Times of the last commit, and an order that does not change: the same input gives the same bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct").strip()
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"  # auditwheel calls patchelf
    return os.environ | {"SOURCE_DATE_EPOCH": epoch, "PYTHONHASHSEED": "0", "PATH": path}


def build(folder: Path) -> list[Path]:
    """An sdist, and from it a wheel of this platform and a pure one."""
    env = build_environment()
    run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, env=env)
    (sdist,) = folder.glob("*.tar.gz")
    repack(sdist, int(env["SOURCE_DATE_EPOCH"]))
    source = folder / "source"
    shutil.unpack_archive(sdist, source, filter="data")
    (unpacked,) = source.iterdir()
    native = folder / "native"
    run(sys.executable, "-m", "build", "--wheel", "--outdir", native, unpacked, env=env)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, unpacked, env=env | {"KOHORT_PURE": "1"})
    (wheel,) = native.glob("*.whl")
    if sys.platform == "linux":
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel, env=env)
    else:
        shutil.copy(wheel, folder)
    shutil.rmtree(source)
    shutil.rmtree(native)
    return sorted(folder.iterdir())


def repack(sdist: Path, epoch: int) -> None:
    """An archive without the times and the user of this build."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    folder = sdist.parent / "repack"
    shutil.unpack_archive(sdist, folder, filter="data")
    (content,) = folder.iterdir()
    with (
        sdist.open("wb") as out,
        gzip.GzipFile("", "wb", 9, out, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in [content, *sorted(content.rglob("*"))]:
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=plain)
    shutil.rmtree(folder)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def without_compiler(venv: Path) -> dict[str, str]:
    return {"PATH": str(venv / "bin"), "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"} | {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))
    }


def clean_environment(python: str, folder: Path, *what: object) -> Path:
    venv = folder / f"venv-{len(list(folder.iterdir()))}"
    run(python, "-m", "venv", venv)
    pip = [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, *what, env=without_compiler(venv), cwd=folder)
    return venv


def try_it(venv: Path, folder: Path) -> str:
    """The README's program, the command line, and the example with the pytest plugin."""
    env = without_compiler(venv)
    (folder / "readme.py").write_text(CODE.findall((ROOT / "README.md").read_text())[0])
    assert "one coffee" in run(venv / "bin" / "python", "readme.py", env=env, cwd=folder)
    version = run(venv / "bin" / "kohort", "--version", env=env, cwd=folder).strip()
    assert "reset-offsets" in run(venv / "bin" / "kohort", "groups", "--help", env=env, cwd=folder)
    assert "--control-port" in run(venv / "bin" / "kohort", "serve", "--help", env=env, cwd=folder)
    wrong = subprocess.run([venv / "bin" / "kohort", "grops"], env=env, cwd=folder, capture_output=True, text=True)
    assert "did you mean groups?" in wrong.stderr, wrong.stderr
    shutil.copy(ROOT / "examples" / "test_my_application.py", folder)
    (folder / "pytest.ini").write_text("[pytest]\n")
    tests = run(venv / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", env=env, cwd=folder)
    kernel = "from kohort.records.kernel import load; print('kernel' if load() else 'no kernel')"
    has_kernel = run(venv / "bin" / "python", "-c", kernel, env=env, cwd=folder).strip()
    return f"{version}, {has_kernel}; README runs; {tests.strip().splitlines()[-1]}"


def find_pythons() -> dict[str, str]:
    found = {}
    for version in PYTHONS:
        for name in (f"python{version}", *map(str, Path.home().glob(f".pyenv/versions/{version}*/bin/python"))):
            path = shutil.which(name)
            probe = "import sys; print('%d.%d' % sys.version_info[:2])"
            if path and subprocess.run([path, "-c", probe], capture_output=True, text=True).stdout.strip() == version:
                found[version] = path
                break
    return found


def lowest() -> list[str]:
    """The dependencies at their lower bounds."""
    names = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [name.split(";")[0].strip().replace(">=", "==") for name in names]


def missing() -> list[str]:
    notes = []
    if not os.environ.get("KOHORT_HOME_URL"):
        notes.append("KOHORT_HOME_URL is not set: no project urls, and the description has no links and no picture")
    if run("git", "status", "--porcelain").strip():
        notes.append("the work tree has changes that are not committed")
    if not run("git", "tag", "--points-at", "HEAD").strip():
        notes.append("this commit has no tag")
    notes.append("wheels for other platforms: cibuildwheel, see RELEASING.md")
    return notes


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="kohort-dist-") as name:
        first, second, trial = (Path(name) / part for part in ("first", "second", "trial"))
        for folder in (first, second, trial):
            folder.mkdir()
        one, two = build(first), build(second)
        differing = [a.name for a, b in zip(one, two, strict=True) if a.name != b.name or digest(a) != digest(b)]
        if differing:
            sys.exit(f"make dist: built twice, these differ: {', '.join(differing)}")
        shutil.copytree(first, DIST)
        for path in sorted(DIST.iterdir()):
            say(f"{path.name}  {path.stat().st_size // 1024} KB  sha256 {digest(path)[:16]}")
        checked = run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir()).count("PASSED")
        say(f"built twice, byte for byte the same; {checked} files pass twine check")
        (pure,) = DIST.glob("*-none-any.whl")
        (wheel,) = (path for path in DIST.glob("*.whl") if path != pure)
        (sdist,) = DIST.glob("*.tar.gz")
        pythons = find_pythons()
        for version, python in pythons.items():
            say(f"Python {version}, {wheel.name}: {try_it(clean_environment(python, trial, wheel, 'pytest'), trial)}")
        say(f"the pure wheel: {try_it(clean_environment(sys.executable, trial, pure, 'pytest'), trial)}")
        say(f"the sdist, no compiler: {try_it(clean_environment(sys.executable, trial, sdist, 'pytest'), trial)}")
        venv = clean_environment(sys.executable, trial, wheel, "pytest", *lowest())
        say(f"lowest dependencies ({', '.join(lowest())}): {try_it(venv, trial)}")
    for version in PYTHONS:
        if version not in pythons:
            say(f"not tried: Python {version} is not here")
    for note in missing():
        say(f"to publish: {note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
