"""Names: of topics, groups and transactions for a shell to complete, of states and types to choose from, by a regular
expression.

Completion says nothing where the cluster cannot be asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any

import typer

from kohort.cli.failures import WrongInput
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


def transactional_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    found = _ask(ctx, lambda admin: [row.transactional_id for row in admin.list_transactions()])
    return [name for name in found if name.startswith(incomplete)]


def one_of(*values: str) -> Callable[[str], list[str]]:
    """Completion of an option that takes one of these."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.lower().startswith(incomplete.lower())]

    return complete


def several(what: str, values: Iterable[str], help: str) -> Any:
    """An option that takes some of these; `chosen` reads it."""
    return typer.Option(metavar=f"{what}[,...]", help=help, autocompletion=one_of(*values))


def chosen(given: Iterable[str] | None, known: Iterable[str], what: str) -> list[str]:
    """Values of an option that takes some of a list, with commas or several times, in any case."""
    by_name = {name.lower(): name for name in known}
    found = []
    for word in (word.strip() for words in given or () for word in words.split(",")):
        if word.lower() not in by_name:
            raise WrongInput(f"{word!r} is no {what}: there are {', '.join(by_name.values())}")
        found.append(by_name[word.lower()])
    return found


def pattern(text: str | None, option: str) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise WrongInput(f"{option} {text!r} is no regular expression: {error}") from None
