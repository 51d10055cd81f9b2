"""Compare what clients of language models cost: the same workloads for all, side by side in one run, on this machine.

    python benchmarks/compare/run.py --setup                    # an environment for each client, under --envs
    python benchmarks/compare/run.py                            # everything, three times over
    python benchmarks/compare/run.py --workloads w1 w3 --clients bare_httpx2 furcate_httpx2 --scale 0.1

A server on the loopback (server.py) answers at next to no cost, in a process of its own and, where the system can be
told, on a core of its own. Each client (clients/) runs each workload in a fresh process (worker.py), one client after
the other, and so on for each repeat; the texts that it gets are checked. Told are medians of the repeats, as Markdown,
with their ratios to bare httpx2 and to bare aiohttp. Compare what stands in one table: figures of two runs differ with
the machine's mood, ratios hardly do. Needs Linux or macOS.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import urllib.request
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from peers import ENVIRONMENTS, PEERS
from tables import METHOD, WORKLOADS, Found, Results, figure

_HERE = Path(__file__).resolve().parent
_LIMIT_S = 600
_IMPORTS = 2
"""How often an import is measured for one repeat: it is short, and its times spread."""


class Bench:
    """Start the processes, and collect what they found.

    Arguments:
        envs: the folder of the environments.
        own: interpreters of clients that have one of their own, by client.
        scale: how big the workloads are; 1 is what is described.
    """

    def __init__(self, envs: Path, own: Mapping[str, str], scale: float) -> None:
        self._envs = envs
        self._own = own
        self._scale = scale
        self._compiled: set[str] = set()
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self.cores = (cores[0], cores[1]) if len(cores) > 1 else None
        # What is imported should be there compiled, as it is for users, and not be compiled anew each time.
        self._environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def python(self, name: str) -> str:
        """Give the interpreter of a client.

        Raises:
            FileNotFoundError: there is none.
        """
        found = Path(self._own.get(name, self._envs / PEERS[name].env / "bin" / "python"))
        if not found.exists():
            raise FileNotFoundError(
                f"{name} has no Python at {found}: make it with --setup, name one with --python {name}=PATH, "
                "or leave the client out with --clients"
            )
        return str(found)

    def setup(self, names: Sequence[str]) -> None:
        """Make the environments of the clients, or bring them up to date."""
        for env in dict.fromkeys(PEERS[name].env for name in names if name not in self._own):
            _say(f"making {self._envs / env}")
            venv.create(self._envs / env, with_pip=True)
            command = [str(self._envs / env / "bin" / "python"), "-m", "pip", "install", "--quiet", "--upgrade"]
            subprocess.run([*command, *ENVIRONMENTS[env]], check=True)

    def versions(self, name: str) -> dict[str, str]:
        """Give the versions of a client's Python and packages."""
        command = [self.python(name), "-c", _VERSIONS, *PEERS[name].versions]
        found: dict[str, str] = json.loads(subprocess.check_output(command, env=self._environment))
        return found

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run the server."""
        command = [sys.executable, str(_HERE / "server.py"), *self._on_core(1)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            try:
                self._root = f"http://127.0.0.1:{int(server.stdout.readline())}"
                yield
            finally:
                server.stdin.close()

    def measure(self, workload: str, name: str) -> Found:
        """Run a workload once for a client.

        Raises:
            RuntimeError: it failed, or took too long.
        """
        if workload == "w6":
            return self._imports(name)
        peer = PEERS[name]
        command = [self.python(name), str(_HERE / "worker.py"), peer.file, workload, "--base-url", f"{self._root}/v1"]
        command += ["--scale", str(self._scale), *self._on_core(0)]
        command += ["--variant", peer.variant] if peer.variant else []
        self._seen()
        found: Found = json.loads(self._output(command))
        return {**found, **self._seen()}

    def _seen(self) -> Found:
        with urllib.request.urlopen(f"{self._root}/seen") as answered:
            seen = json.load(answered)
        return {f"server_{key}": value for key, value in seen.items()}

    def _imports(self, name: str) -> Found:
        """Measure what is imported: a client's first time, which may compile, is not counted."""
        if name not in self._compiled:
            self._import(name, PEERS[name].ready)
            self._compiled.add(name)
        pairs = [(self._import(name, "pass"), self._import(name, PEERS[name].ready)) for _ in range(_IMPORTS)]
        return {key: statistics.median(full[key] - bare[key] for bare, full in pairs) for key in pairs[0][0]}

    def _import(self, name: str, statement: str) -> Found:
        pin = f"import os; os.sched_setaffinity(0, {{{self.cores[0]}}})\n" if self.cores else ""
        code = f"import time; began_s = time.perf_counter()\n{pin}{statement}\n{_TELL}"
        found: Found = json.loads(self._output([self.python(name), "-c", code]))
        return found

    def _output(self, command: Sequence[str]) -> str:
        """Give the last line that a process prints."""
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_LIMIT_S, env=self._environment, check=False
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"it took more than {_LIMIT_S} seconds") from None
        if done.returncode or not done.stdout.strip():
            raise RuntimeError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
        return done.stdout.strip().splitlines()[-1]

    def _on_core(self, number: int) -> list[str]:
        return ["--core", str(self.cores[number])] if self.cores else []


_VERSIONS = """
import json, platform, sys
from importlib.metadata import PackageNotFoundError, version
found = {"Python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        found[name] = "(not installed, from a folder)"
print(json.dumps(found))
"""
_TELL = """
wall_ms = 1e3 * (time.perf_counter() - began_s)
import json, resource, sys
modules = len(sys.modules)
used = resource.getrusage(resource.RUSAGE_SELF)
try:
    most = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
except FileNotFoundError:
    most = used.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
cpu_ms = 1e3 * (used.ru_utime + used.ru_stime)
print(json.dumps({"wall_ms": wall_ms, "cpu_ms": cpu_ms, "grown_mb": most * 1024 / 1e6, "modules": modules}))
"""


def about(
    bench: Bench, versions: Mapping[str, Mapping[str, str]], workloads: Sequence[str], plan: str
) -> Iterator[str]:
    """Say when, where, with what and how it was measured, as Markdown."""
    cores = "the server on a core of its own" if bench.cores else "cores shared as the system liked"
    yield (
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, {cores}. {plan}"
    )
    yield ""
    for name, found in versions.items():
        yield f"- {name}: {', '.join(f'{package} {version}' for package, version in found.items())}"
    yield ""
    yield "CPU is user and system time of the client's process, without its start and a first warming up."
    yield ""
    for workload in workloads:
        yield f"- {workload.capitalize()}: {METHOD[workload]}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def _times(given: str) -> tuple[str, int]:
    workload, _, number = given.partition("=")
    if workload not in WORKLOADS or not number.isdigit() or not int(number):
        raise argparse.ArgumentTypeError(f"{given!r} is not like w4=1")
    return workload, int(number)


def _own(given: str) -> tuple[str, str]:
    name, _, path = given.partition("=")
    if name not in PEERS or not path:
        raise argparse.ArgumentTypeError(f"{given!r} is not like furcate_httpx2=.venv/bin/python")
    return name, path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setup", action="store_true", help="make the environments of the clients, and end")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=WORKLOADS, metavar="W")
    parser.add_argument("--clients", nargs="+", choices=PEERS, default=tuple(PEERS), metavar="CLIENT")
    parser.add_argument("--repeats", type=int, default=3, help="processes of each client for each workload")
    parser.add_argument("--repeats-of", nargs="+", type=_times, default=[], metavar="W=N", help="others for some")
    parser.add_argument("--scale", type=float, default=1.0, help="how big the workloads are: 0.1 is a tenth")
    parser.add_argument("--envs", type=Path, default=Path(tempfile.gettempdir()) / "furcate-compare")
    parser.add_argument("--python", nargs="+", type=_own, default=[], metavar="CLIENT=PATH")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all that was measured")
    return parser


def _measured(bench: Bench, results: Results, repeats: Mapping[str, int]) -> None:
    """Run it all: the clients take turns within each repeat, so that the machine's moods reach them alike."""
    for workload, of_peers in results.found.items():
        for repeat in range(repeats[workload]):
            for name, found in of_peers.items():
                try:
                    one = bench.measure(workload, name)
                except RuntimeError as error:
                    results.failed[f"{workload} {name}"] = str(error)
                    _say(f"{workload} {name} failed: {error}")
                    continue
                found.append(one)
                told = ", ".join(f"{key} {figure(value)}" for key, value in one.items())
                _say(f"{workload} {repeat + 1}/{repeats[workload]} {name}: {told}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, print the tables, and give 1 where something failed."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.repeats < 1 or given.scale <= 0:
        parser.error("--repeats and --scale have to be more than nothing")
    bench = Bench(given.envs, dict(given.python), given.scale)
    if given.setup:
        bench.setup(given.clients)
        return 0
    try:
        versions = {name: bench.versions(name) for name in given.clients}
    except FileNotFoundError as error:
        parser.error(str(error))
    results = Results(given.clients, given.workloads)
    repeats = {**dict.fromkeys(given.workloads, given.repeats), **dict(given.repeats_of)}
    with bench.serving():
        _measured(bench, results, repeats)
    plan = f"Medians of processes: {given.repeats} each" + "".join(f", {n} of {one}" for one, n in given.repeats_of)
    plan += "." if given.scale == 1 else f"; workloads at {given.scale:g} of their size."
    story = list(about(bench, versions, given.workloads, plan))
    for line in (*results.lines(given.scale), "", *story):
        print(line)  # noqa: T201
    if given.json is not None:
        kept = {"about": story, "versions": versions, "found": results.found, "failed": results.failed}
        given.json.write_text(json.dumps(kept, indent=1) + "\n")
    for what, why in results.failed.items():
        print(f"\n{what} failed: {why}")  # noqa: T201
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
