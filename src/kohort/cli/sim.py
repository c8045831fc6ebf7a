"""`kohort sim`: run seeds of the simulator, report the first failure with what it takes to repeat it."""

from __future__ import annotations

import logging
import os
import time
from typing import Annotated, Any

import typer

from kohort.cli.failures import Failed, WrongInput
from kohort.cli.output import JsonOption, is_terminal, plain_table, print_json
from kohort.cli.style import command, new_app
from kohort.sim.cluster_mutations import CLUSTER_MUTATIONS
from kohort.sim.modern_mutations import MODERN_MUTATIONS, OF_THE_CONSUMER_PROTOCOL
from kohort.sim.mutations import MUTATIONS, Mutation
from kohort.sim.options import MOVING, SINK, TRANSACTIONS
from kohort.sim.runner import Caught, Result, checkers_for, hunt, run_seed, run_seeds, shrink
from kohort.sim.sink_mutations import SINK_MUTATIONS
from kohort.sim.txn_mutations import TXN_MUTATIONS

app = new_app()
PROGRESS_EVERY_SECONDS = 10.0


@command(app)
def sim(
    seed: Annotated[int | None, typer.Option(help="Run this one seed.", min=0)] = None,
    seeds: Annotated[int | None, typer.Option(help="Run this many seeds, one after another.", min=1)] = None,
    first: Annotated[int, typer.Option("--from", help="The first of them.", min=0)] = 0,
    minutes: Annotated[float, typer.Option(help="Simulated minutes of faults in a run.", min=0.1)] = 1.0,
    brokers: Annotated[
        int,
        typer.Option(help="Brokers of one cluster, which die, stand still, are cut off, come and go.", min=1, max=9),
    ] = 1,
    workers: Annotated[int, typer.Option(help="Processes to run in; 0 means one a core.", min=0)] = 0,
    mutations: Annotated[
        bool, typer.Option("--mutations", help="Switch on deliberate bugs, one by one: each must be caught.")
    ] = False,
    transactions: Annotated[
        bool, typer.Option("--transactions", help="Worlds of transactional producers and read_committed consumers.")
    ] = False,
    sink: Annotated[
        bool, typer.Option("--sink", help="Worlds of Spark queries that write exactly once, without Spark.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the real broker, coordinator and members in a simulated world full of faults, and check what must hold.

    The same seed always gives the same run. A failure prints its seed, the faults it takes and what happened last.
    """
    logging.disable(logging.CRITICAL)
    if seed is not None and (seeds is not None or mutations):
        raise WrongInput("--seed runs one seed: leave out --seeds and --mutations, or leave out --seed")
    if brokers > 1 and sink:
        raise WrongInput("--brokers: leave out --sink, which is of one broker")
    if transactions and sink:
        raise WrongInput("--transactions and --sink are worlds of their own: leave one of them out")
    world: dict[str, Any] = {"minutes": minutes} | (TRANSACTIONS if transactions else SINK if sink else {})
    if brokers > 1:
        world["brokers"] = brokers
    if mutations:
        _hunt_all(range(first, first + (seeds or 200)), world, as_json)
    elif seeds is not None:
        _run_many(range(first, first + seeds), workers or os.cpu_count() or 1, world, as_json)
    else:
        _run_one(seed or 0, world, as_json)


def _run_one(seed: int, world: dict[str, Any], as_json: bool) -> None:
    result = run_seed(seed, **world)
    if as_json:
        print_json(result.to_dict())
    else:
        speed = result.simulated_seconds / max(result.cpu_seconds, 1e-9)
        counted = ", ".join(f"{count} {kind}" for kind, count in sorted(result.counts.items()))
        print(f"seed {seed}: {result.simulated_seconds:.0f} simulated seconds, {speed:.0f}x real time")
        print(f"  {counted}")
        print(f"  digest {result.digest}")
        print(_verdict(result))
    if not result.passed:
        _report(result, world, as_json)


def _verdict(result: Result) -> str:
    """Pass or fail, after what, and by whose judgement."""
    faults = f"{result.counts.get('fault', 0)} faults of {len(result.options.faults())} kinds"
    if result.passed:
        names = ", ".join(checker.__name__ for checker in checkers_for(result.options))
        return f"PASS after {faults}; checked: {names}"
    return f"FAIL after {faults}: {result.failure}"


def _run_many(seeds: range, workers: int, world: dict[str, Any], as_json: bool) -> None:
    began, said = time.monotonic(), time.monotonic()
    done, simulated, cpu = 0, 0.0, 0.0
    failed: Result | None = None
    with _Progress(len(seeds), shown=is_terminal() and not as_json) as progress:
        for result in run_seeds(seeds, workers, **world):
            done, simulated, cpu = done + 1, simulated + result.simulated_seconds, cpu + result.cpu_seconds
            progress.advance()
            if not progress.shown and not as_json and time.monotonic() - said > PROGRESS_EVERY_SECONDS:
                said = time.monotonic()
                print(f"{done} of {len(seeds)} seeds", flush=True)
            if not result.passed:
                failed = result
                break
    elapsed = time.monotonic() - began
    summary = {
        "seeds": done,
        "simulated_minutes": round(simulated / 60, 1),
        "elapsed_seconds": round(elapsed, 1),
        "cpu_seconds": round(cpu, 1),
        "simulated_minutes_per_second": round(simulated / 60 / max(elapsed, 1e-9), 1),
        "times_real_time_per_core": round(simulated / max(cpu, 1e-9)),
        "passed": failed is None,
    }
    if as_json:
        print_json(summary | ({"failure": failed.to_dict()} if failed else {}))
    else:
        print(
            f"{done} seeds, {simulated / 3600:.1f} simulated hours in {elapsed:.0f} s: "
            f"{summary['simulated_minutes_per_second']} simulated minutes a second, "
            f"{summary['times_real_time_per_core']}x real time on one core"
        )
    if failed is not None:
        _report(failed, world, as_json)
    elif not as_json:
        print("all checkers hold")


def _report(result: Result, world: dict[str, Any], as_json: bool) -> None:
    """The seed, the faults that are needed, the story; then exit 1."""
    if not as_json:
        print(f"\nseed {result.seed} fails: {result.failure}")
        smallest = shrink(result, world, lambda text: print(f"  {text}"))
        print(f"it takes: {', '.join(smallest.options.faults()) or 'no fault at all'}")
        print(f"options: {smallest.options}")
        print("what happened last:")
        for line in smallest.story:
            print(f"  {line}")
    flag = " --sink" if "queries" in world else " --transactions" if "transactors" in world else ""
    flag += f" --brokers {world['brokers']}" if "brokers" in world else ""
    again = f"kohort sim --seed {result.seed} --minutes {world['minutes']:g}{flag}"
    raise Failed(f"seed {result.seed} fails; repeat it with: {again}")


def _hunt_all(seeds: range, world: dict[str, Any], as_json: bool) -> None:
    found: list[Caught] = []
    if "queries" in world:
        found += [hunt(mutation, seeds, **world) for mutation in SINK_MUTATIONS]
    elif "transactors" in world:
        found += [hunt(mutation, seeds, **world) for mutation in TXN_MUTATIONS]
    elif "brokers" in world:
        found += [hunt(mutation, seeds, **world) for mutation in CLUSTER_MUTATIONS]
        found += [hunt(mutation, seeds, **world, protocols=("consumer",)) for mutation in MODERN_MUTATIONS["Order"][:1]]
    else:
        found += [hunt(mutation, seeds, **world) for mutation in MUTATIONS]
        found += [_hunt_modern(mutation, seeds, world) for mutation in OF_THE_CONSUMER_PROTOCOL]
    rows: list[dict[str, Any]] = [
        {"bug": caught.mutation.title, "seed": caught.seed, "found": caught.failure} for caught in found
    ]
    if as_json:
        print_json(rows)
    else:
        table = [[row["bug"], "-" if row["seed"] is None else str(row["seed"]), row["found"][:90]] for row in rows]
        print("\n".join(plain_table(("bug", "seed", "found"), table)))
    if missed := [row["bug"] for row in rows if row["seed"] is None]:
        raise Failed(f"not caught within {len(seeds)} seeds: {', '.join(missed)}")


def _hunt_modern(mutation: Mutation, seeds: range, world: dict[str, Any]) -> Caught:
    """In groups of the consumer protocol, then in such as move between the protocols."""
    caught = hunt(mutation, seeds, **{**world, "protocols": ("consumer",)})
    return hunt(mutation, seeds, **{**world, **MOVING}) if caught.seed is None else caught


class _Progress:
    """A bar in a terminal, nothing elsewhere."""

    def __init__(self, total: int, shown: bool) -> None:
        self.shown = shown
        self._total = total
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> _Progress:
        if self.shown:
            from rich.progress import Progress

            self._bar = Progress(transient=True)
            self._bar.start()
            self._task = self._bar.add_task("seeds", total=self._total)
        return self

    def advance(self) -> None:
        if self._bar is not None:
            self._bar.advance(self._task)

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()
