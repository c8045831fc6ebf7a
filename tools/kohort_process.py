"""`kohort serve` as a subprocess on a free port, for tests and benchmarks: the one place that knows how to start it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from broker_process import BrokerProcess


def kohort_command(port: int, data_dir: Path, config: Mapping[str, object], log_level: str = "info") -> list[str]:
    program = Path(sys.executable).with_name("kohort")
    settings = [word for key, value in config.items() for word in ("--config", f"{key}={value}")]
    return [
        str(program),
        "serve",
        "--port",
        str(port),
        "--data-dir",
        str(data_dir),
        "--log-level",
        log_level,
        *settings,
    ]


class KohortProcess(BrokerProcess):
    name = "kohort serve"
    look_every = 0.002

    def __init__(
        self, config: Mapping[str, object] | None = None, *, data_dir: Path | str | None = None, log_level: str = "info"
    ) -> None:
        super().__init__(config, data_dir=data_dir, log_level=log_level)

    def _command(self) -> list[str]:
        return kohort_command(self.port, self.data_dir, self.config, self.log_level)
