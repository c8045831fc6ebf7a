"""From seeds to results: one run, many over the cores, a failing one shrunk to the faults it needs."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import Any

from kohort.sim import checkers
from kohort.sim.cluster_world import ClusterWorld
from kohort.sim.mutations import Mutation
from kohort.sim.options import Options, protocols_of
from kohort.sim.trace import Checker, CheckFailed
from kohort.sim.world import START_MS, World

TAIL = 40


@dataclass(slots=True)
class Result:
    """What a run came to. `digest` is the same whenever and wherever the seed runs with the same options."""

    seed: int
    options: Options
    digest: str
    simulated_seconds: float
    cpu_seconds: float
    counts: dict[str, int]
    failure: str | None = None
    story: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.failure is None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}


def checkers_for(options: Options) -> tuple[type[Checker], ...]:
    several = options.brokers > 1
    if options.transactors:
        return checkers.CLUSTER_TRANSACTIONAL if several else checkers.TRANSACTIONAL
    if options.queries:
        return checkers.SINK
    if set(options.protocols) == {"classic"}:
        return checkers.CLUSTER if several else checkers.ALL
    return checkers.CLUSTER_ANY_PROTOCOL if several else checkers.ANY_PROTOCOL


def run_seed(seed: int, only: type[Checker] | None = None, **overrides: Any) -> Result:
    """One run in this process. A bug in the code under test that raises counts as a failure too."""
    if only is None and not overrides.keys() & {"protocols", "transactors", "queries"}:
        overrides = protocols_of(seed) | overrides
    options = Options.from_seed(seed, **overrides)
    began = time.process_time()
    failure = None
    world = None
    try:
        kind = World if options.brokers == 1 else ClusterWorld
        world = kind(seed, options, [make() for make in ((only,) if only else checkers_for(options))])
        world.run()
    except CheckFailed as error:
        failure = str(error)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
    return Result(
        seed=seed,
        options=options,
        digest=world.trace.digest if world else "",
        simulated_seconds=(world.scheduler.now_ms - START_MS) / 1000 if world else 0.0,
        cpu_seconds=time.process_time() - began,
        counts=world.trace.counts if world else {},
        failure=failure,
        story=list(world.trace.lines)[-TAIL:] if world and failure else [],
    )


def run_seeds(seeds: Iterable[int], workers: int, **overrides: Any) -> Iterator[Result]:
    """Results as they come, in the order of the seeds. The caller stops by not asking for more."""
    if workers <= 1:
        for seed in seeds:
            yield run_seed(seed, **overrides)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("forkserver"), initializer=_quiet) as pool:
        waiting: list[Any] = []
        pending = iter(seeds)
        try:
            for seed in pending:
                waiting.append(pool.submit(run_seed, seed, **overrides))
                if len(waiting) >= workers * 4:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()


def _quiet() -> None:
    import logging

    logging.disable(logging.CRITICAL)


def shrink(result: Result, overrides: dict[str, Any], said: Callable[[str], None] = lambda _: None) -> Result:
    """Turn off one kind of fault after another as long as the run still fails: what is left is what it takes."""
    best, kept = result, dict(overrides)
    for name in result.options.faults():
        trial = {**kept, name: 0}
        again = run_seed(result.seed, **trial)
        if not again.passed:
            best, kept = again, trial
            said(f"still fails without {name.removesuffix('_every_ms').replace('_', ' ')}")
    return best


@dataclass(frozen=True, slots=True)
class Caught:
    """Which seed showed a mutation, and what the checker said."""

    mutation: Mutation
    seed: int | None
    failure: str


def hunt(mutation: Mutation, seeds: Iterable[int], only: type[Checker] | None = None, **overrides: Any) -> Caught:
    """Run seeds with a bug switched on until a checker (or the one and only) complains."""
    with mutation.applied():
        for seed in seeds:
            result = run_seed(seed, only, **{"protocols": ("classic",), **overrides})
            if not result.passed:
                return Caught(mutation, seed, result.failure or "")
    return Caught(mutation, None, "not caught")
