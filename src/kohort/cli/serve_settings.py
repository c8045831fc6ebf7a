"""What `kohort serve` was told: the settings it says at its start, and those it takes anew on SIGHUP."""

from __future__ import annotations

import argparse
import logging
import platform
from typing import Any

logger = logging.getLogger("kohort.broker")

HIDDEN = "[hidden]"
_TAKEN_OF_LISTENERS = ("max.connections", "sasl.jaas.config")


def differing(config: Any) -> str:
    """The settings that are not their defaults; secrets hidden."""
    texts = []
    for name in sorted({*config.given, *config.cluster, *config.dynamic}):
        key = config.key(name)
        if config[name] != key.default:
            texts.append(f"{name}={HIDDEN if key.sensitive else key.format(config[name])}")
    for setting, value in sorted(config.of_listeners.items()):
        key = config.key(setting.key)
        texts.append(f"{setting}={HIDDEN if key.sensitive else key.format(value)}")
    return ", ".join(texts) or "none"


def say_start(running: Any, options: argparse.Namespace) -> None:
    """One line with what somebody who reads the log later will ask for."""
    from kohort import __version__

    where = "memory" if options.memory else f"the cluster at {options.cluster}"
    path = getattr(running.store, "path", None)
    if path is not None:
        stop = {None: "new", True: "stopped cleanly before", False: "not stopped cleanly before: recovered"}
        where = f"{path} ({stop[running.store.last_stop]})"
    logger.info(
        "kohort %s started on Python %s: node %d, data in %s; settings that differ: %s",
        __version__,
        platform.python_version(),
        running.core.node_id,
        where,
        differing(running.core.config),
    )


def reload(running: Any, given: dict[str, str], before: dict[str, str]) -> dict[str, str]:
    """SIGHUP: takes the settings of the file as far as a running broker can; what it goes on with. Certificates are
    read again. Raises nothing: what cannot be taken is said, and stays as it was."""
    from kohort.broker.boot import make_config
    from kohort.broker.config import ConfigError
    from kohort.broker.listener_config import JAAS, jaas_users

    core = running.core
    try:
        for certificates in running.server.certificates.values():
            certificates.reload()
        if running.server.certificates:
            logger.info("SIGHUP: new connections get the certificates as they are now")
        if core.tokens is not None:
            core.tokens.reload()
    except ConfigError as error:
        logger.error("SIGHUP: certificates or keys stay as they were: %s", error)
    try:
        new = make_config(given)
    except ConfigError as error:
        logger.error("SIGHUP: settings stay as they were: %s", error)
        return before
    changed = {name for name in new.keys if new[name] != _before(core.config, name)}
    taken = sorted(name for name in changed if new.key(name).dynamic or name == JAAS)
    fixed = sorted(changed - set(taken))
    if taken:
        core.topics.set_given({name: new.given[name] for name in taken if name in new.given}, removed=taken)
    of_listeners, left = _take_of_listeners(core.config, new)
    if JAAS in taken or of_listeners:
        core.users.take_back()
        core.users.give(jaas_users(core.config[JAAS]))
        running.server.give_users()
    taken, fixed = [*taken, *of_listeners], [*fixed, *left]
    logger.info("SIGHUP: %s", f"taken: {', '.join(taken)}" if taken else "no setting has changed that can be taken")
    if fixed:
        logger.warning("SIGHUP: these need a restart: %s", ", ".join(fixed))
    return given


def _take_of_listeners(config: Any, new: Any) -> tuple[list[str], list[str]]:
    """The settings of listeners that are taken, users and numbers of connections, and those that need a restart."""
    before, after = config.of_listeners, new.of_listeners
    changed = [one for one in {**before, **after} if before.get(one) != after.get(one)]
    taken = [one for one in changed if one.key in _TAKEN_OF_LISTENERS]
    for one in taken:
        if one in after:
            before[one] = after[one]
        else:
            del before[one]
    return sorted(str(one) for one in taken), sorted(str(one) for one in changed if one not in taken)


def _before(config: Any, name: str) -> Any:
    return config.given.get(name, config.key(name).default)
