"""The house keeps its rooms: who may import whom, what the pure packages may not touch, what a broker process loads."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from serving import environment

SOURCE = Path(__file__).parent.parent / "src" / "kohort"

# Package -> packages of ours that it may import.
MAY_IMPORT = {
    "config_key": set(),
    "lazy_names": set(),
    "key_stores": {"config_key"},
    "protocol": set(),
    "records": {"protocol"},
    "assignors": {"lazy_names"},
    "coordinator": {"protocol", "records", "assignors"},
    "insight": {"coordinator", "assignors", "protocol"},
    "storage": {"config_key", "protocol", "records"},
    "cluster": set(),
    "broker": {
        "config_key",
        "key_stores",
        "protocol",
        "records",
        "assignors",
        "coordinator",
        "insight",
        "storage",
        "cluster",
    },
    "client": {"config_key", "key_stores", "lazy_names", "protocol", "records", "assignors"},
    "registry": set(),
    "spark": {"lazy_names", "registry", "client", "assignors", "records", "protocol"},
    "history": {"lazy_names", "spark", "client", "insight", "coordinator", "records", "protocol"},
    "console": {"history", "client", "insight", "coordinator", "protocol"},
    # Of spark/ the exactly-once sink's protocol alone, which needs no Spark.
    "sim": {"broker", "cluster", "client", "coordinator", "storage", "assignors", "records", "protocol", "spark"},
    "schemes": {"sim", "broker", "client", "coordinator", "assignors", "protocol"},
    "testing": {"broker", "client"},
    "demo": {"spark", "client", "insight", "coordinator", "protocol"},
    "cli": {
        "broker",
        "client",
        "spark",
        "history",
        "console",
        "insight",
        "coordinator",
        "sim",
        "schemes",
        "demo",
        "storage",
        "records",
        "protocol",
    },
}
PURE = ["config_key", "protocol", "records", "assignors", "coordinator", "insight", "cluster"]
# Drivers and the public classes of the client do input and output; everything else in there is a core or a part of one.
CLIENT_SHELL = {
    f"client/{name}.py"
    for name in [
        "admin",
        "admin_async",
        "background",
        "blocking",
        "cluster",
        "consumer",
        "consumer_async",
        "delivery",
        "driver_async",
        "driver_threaded",
        "listing",
        "producer",
        "producer_async",
        "producer_columns",
        "producer_transactions",
        "security",
        "tokens",
        "transport",
    ]
}
PURE_FILES = [
    path.relative_to(SOURCE).as_posix()
    for path in sorted((SOURCE / "client").rglob("*.py"))
    if path.relative_to(SOURCE).as_posix() not in CLIENT_SHELL
]
IMPURE_MODULES = {"asyncio", "socket", "time", "random", "os", "threading", "selectors", "subprocess", "uvloop"}
# The C kernel of the columnar decoder is found and loaded by its path.
EXCUSED = {"records/kernel.py", "records/build_kernel.py"}
# Engines talk to stores, all the rest of a cluster is pure.
EXCUSED |= {f"cluster/{name}_engine.py" for name in ("directory", "memory", "object", "open")}
EXCUSED |= {"cluster/create_library.py"}  # the C half of the directory engine
CORE_FORBIDDEN = {"asyncio", "socket", "time", "random", "threading", "uvloop"}
SHELL = {
    "server.py",
    "apart.py",
    "embedded.py",
    "embedded_cluster.py",
    "boot.py",
    "clock.py",
    "cluster_boot.py",
    "cluster_control.py",
    "control.py",
    "broker_protocol.py",
    "tls_transport.py",
    "http_port.py",
    "metrics_port.py",
    "control_routes.py",
    "controls.py",
    "inside.py",
    "peer_sockets.py",
}


def files_of(package):
    return sorted((SOURCE / package).rglob("*.py")) or [SOURCE / f"{package}.py"]


def imports(path):
    """(module, line) of everything imported, but for type checking only."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def relative(path):
    return path.relative_to(SOURCE).as_posix()


def test_every_room_is_on_the_map():
    rooms = {path.stem for path in SOURCE.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert rooms - {"__init__", "__pycache__", "py"} == set(MAY_IMPORT)
    listed = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert set(listed) == set(MAY_IMPORT)


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_go_one_way(package):
    allowed = MAY_IMPORT[package] | {package}
    for path in files_of(package):
        for module, line in imports(path):
            parts = module.split(".")
            if parts[0] == "kohort" and len(parts) > 1 and (SOURCE / parts[1]).is_dir():
                assert parts[1] in allowed, f"{relative(path)}:{line}: {package} may not import {module}"


# The runtime of coordinators knows nothing of groups; what is about any group knows none of their protocols.
RUNTIME = {"coordinator/runtime.py", "coordinator/shard.py", "coordinator/timers.py"}
RUNTIME_MAY_IMPORT = {"runtime", "shard", "timers", "effects"}
ANY_GROUP = {"group", "context", "offsets", "expiry", "admin", "gathering", "effects", "replay", "homing"}


def test_the_runtime_knows_nothing_of_groups():
    for name in RUNTIME:
        for module, line in imports(SOURCE / name):
            parts = module.split(".")
            if parts[:2] == ["kohort", "coordinator"] and len(parts) > 2:
                assert parts[2] in RUNTIME_MAY_IMPORT, f"{name}:{line} imports {module}"


def test_what_is_about_any_group_knows_no_protocol_of_groups():
    for name in ANY_GROUP:
        path = SOURCE / "coordinator" / f"{name}.py"
        for module, line in imports(path):
            protocols = ("kohort.coordinator.classic", "kohort.coordinator.modern.")
            assert not module.startswith(protocols), f"{relative(path)}:{line} imports {module}"


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_do_no_input_or_output(package):
    for path in files_of(package):
        if relative(path) in EXCUSED:
            continue
        found = {module.split(".")[0] for module, _ in imports(path)} & IMPURE_MODULES
        assert not found, f"{relative(path)} imports {found}: take time, ids and randomness as arguments"


@pytest.mark.parametrize("name", PURE_FILES)
def test_pure_files_do_no_input_or_output(name):
    found = {module.split(".")[0] for module, _ in imports(SOURCE / name)} & IMPURE_MODULES
    assert not found, f"{name} imports {found}"


def test_only_the_shell_of_the_broker_knows_asyncio_and_time():
    for path in files_of("broker"):
        if path.name in SHELL:
            continue
        found = {module.split(".")[0] for module, _ in imports(path)} & CORE_FORBIDDEN
        assert not found, f"{relative(path)} imports {found}"


# Of the console: drawings and reports are made of values alone.
CONSOLE_PURE = {"drawing.py", "report.py", "feeding.py"}


@pytest.mark.parametrize("name", sorted(CONSOLE_PURE))
def test_what_the_console_draws_is_pure(name):
    found = {module.split(".")[0] for module, _ in imports(SOURCE / "console" / name)} & IMPURE_MODULES
    assert not found, f"console/{name} imports {found}"


def test_a_broker_process_loads_only_what_it_needs():
    program = """
import sys
from kohort.cli import serve
import kohort.broker.boot, kohort.broker.embedded
heavy = {"pyarrow", "numpy", "pyspark", "rich", "typer", "click", "pandas", "confluent_kafka", "prometheus_client"}
heavy |= {"starlette", "uvicorn"}
loaded = heavy & {name.split(".")[0] for name in sys.modules}
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=environment(), timeout=60)


def test_a_broker_in_a_test_loads_nothing_that_is_slow_to_import():
    program = """
import sys
import kohort
kohort.Broker
slow = {"argparse", "difflib", "importlib.metadata", "importlib.resources", "platform", "tempfile", "uuid"}
assert not slow & set(sys.modules), slow & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=environment(), timeout=60)


def test_a_broker_in_a_test_starts_with_what_it_serves_and_nothing_else():
    """Each module costs half a millisecond of every first test. What is for data directories, TLS, clusters, access
    control and administration is imported when it is asked for; whoever adds to this number asks whether a test needs
    it before its first request."""
    program = """
import sys
before = set(sys.modules)
import kohort
with kohort.Broker():
    new = set(sys.modules) - before
needless = {"pathlib", "pkgutil", "shutil", "tempfile", "urllib.parse"}
needless |= {f"kohort.broker.{name}" for name in ("needs", "asking", "peers", "peer_sockets", "apis.acls", "apis.sasl")}
needless |= {"kohort.coordinator.modern.group"}
needless |= {"kohort.key_stores.stores", "kohort.storage.disk_store", "kohort.storage.local_log", "kohort.cluster"}
assert not needless & new, needless & new
own = sorted(name for name in new if name.startswith("kohort"))
assert len(own) <= 166, (len(own), own)
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=environment(), timeout=60)


def test_no_file_has_more_than_500_lines():
    long = {relative(path): lines for path in SOURCE.rglob("*.py") if (lines := path.read_text().count("\n")) > 500}
    assert not long, "split along the request or the concept"


def test_every_file_says_what_it_is_for():
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if text.strip():
            assert ast.get_docstring(ast.parse(text)), f"{relative(path)} has no docstring"
