"""What a fleet was created with, against what a process was told. No I/O here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from changeover_shared._server.check import Finding
from changeover_shared._settings import Settings
from changeover_shared._store.limits import limited
from changeover_shared._words import LAYOUT


def config_findings(config: Mapping[str, Any] | None, settings: Settings) -> Iterator[Finding]:
    """What has to be said of it. `config` is None where there is no fleet."""
    prefix = settings.prefix
    if config is None:
        yield Finding(
            level="warn",
            code="no_fleet",
            text=f"there is no fleet under the prefix {prefix}: its first client creates it",
            remedy="check --redis and CHANGEOVER_PREFIX, or submit something",
        )
        return
    if config["layout"] != LAYOUT:
        yield Finding(
            level="fail",
            code="format_too_new",
            text=f"fleet {prefix} has the key layout {config['layout']}, this release {LAYOUT}",
            remedy="install the release that its workers run",
        )
    if "partitions" in settings.model_fields_set and config["partitions"] != settings.partitions:
        yield Finding(
            level="fail",
            code="partition_mismatch",
            text=f"fleet {prefix} has {config['partitions']} partitions, this process was told "
            f"{settings.partitions}",
            remedy="unset CHANGEOVER_PARTITIONS",
        )
    for other in limited(settings, config["limits"])[1]:
        yield Finding(
            level="warn",
            code="settings_differ",
            text=f"{other.name} is {other.fleet} in this fleet, this process was told {other.mine}",
            remedy=f"unset CHANGEOVER_{other.name.upper()}",
        )
