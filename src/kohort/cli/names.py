"""Names of topics and groups, for a shell to complete. Says nothing where the cluster cannot be asked."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import typer

from kohort.cli.target import DEFAULT_SERVER, Target

TIMEOUT_MS = 2_000


def _ask(ctx: typer.Context, question: Callable[[Any], list[str]]) -> list[str]:
    servers = ctx.params.get("bootstrap_server") or os.environ.get("KOHORT_BOOTSTRAP_SERVER") or DEFAULT_SERVER
    try:
        target = Target(servers, ctx.params.get("command_config"), [f"default.api.timeout.ms={TIMEOUT_MS}"])
        with target.admin() as admin:
            return question(admin)
    except Exception:
        return []  # a shell that is completing has no place for a complaint


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    return [name for name in _ask(ctx, lambda admin: admin.list_topics()) if name.startswith(incomplete)]


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    found = _ask(ctx, lambda admin: [group.group_id for group in admin.list_groups()])
    return [name for name in found if name.startswith(incomplete)]
