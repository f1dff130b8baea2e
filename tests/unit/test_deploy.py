"""The recipes of `deploy/`: what can be checked of them without running them."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from changeover_shared._exit_codes import MISCONFIGURED
from changeover_shared._settings import Settings
from changeover_worker._process import last_resort

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "changeover-worker@.service"
FILES = sorted(
    path
    for path in (*DEPLOY.rglob("*"), *ROOT.glob("docker-compose.yml"), ROOT / "Dockerfile")
    if path.is_file()
)
MANIFESTS = {path.stem: yaml.safe_load(path.read_text()) for path in DEPLOY.glob("k8s/*.yaml")}
NEEDED_S = Settings.model_fields["drain_grace"].default.total_seconds() + last_resort.DRAINED_S
"""A worker that drains takes at most so long, and ends by itself."""
OWN_KINDS = {"ScaledObject", "Kustomization"}
"""What Kubernetes itself has no schema of."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_setting_in_a_recipe_is_one(path: Path) -> None:
    known = {f"CHANGEOVER_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"CHANGEOVER_[A-Z_]+", path.read_text())) <= known


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_is_what_kubernetes_takes(name: str) -> None:
    manifest = MANIFESTS[name]
    if manifest["kind"] not in OWN_KINDS:
        kubernetes_validate.validate(manifest, "1.34", strict=True)


def test_every_manifest_is_applied() -> None:
    listed = MANIFESTS["kustomization"]["resources"]
    assert sorted(listed) == sorted(f"{name}.yaml" for name in MANIFESTS if name != "kustomization")


def test_what_selects_workers_finds_them() -> None:
    worker = MANIFESTS["worker"]
    labels = worker["spec"]["template"]["metadata"]["labels"]
    assert worker["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["disruption"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["network"]["spec"]["podSelector"]["matchLabels"] == labels
    assert MANIFESTS["scaledobject"]["spec"]["scaleTargetRef"]["name"] == worker["metadata"]["name"]


def test_every_orchestrator_waits_for_a_drain() -> None:
    pod = MANIFESTS["worker"]["spec"]["template"]["spec"]
    unit = dict(re.findall(r"^(\w+)=(\S+)$", UNIT.read_text(), flags=re.MULTILINE))
    compose = _compose()["services"]["worker"]["stop_grace_period"]
    assert pod["terminationGracePeriodSeconds"] > NEEDED_S
    assert timedelta(seconds=int(unit["TimeoutStopSec"])).total_seconds() > NEEDED_S
    assert int(compose.removesuffix("s")) > NEEDED_S


def test_the_probes_ask_where_a_worker_answers() -> None:
    (container,) = MANIFESTS["worker"]["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("liveness", "readiness")} == {
        port["name"]
    }
    image = (ROOT / "Dockerfile").read_text()
    assert f"CHANGEOVER_HEALTH_BIND=0.0.0.0:{port['containerPort']}" in image
    asked = " ".join(_compose()["services"]["worker"]["healthcheck"]["test"])
    assert f"127.0.0.1:{port['containerPort']}/readyz" in asked


def test_redis_keeps_what_it_is_given() -> None:
    command = _compose()["services"]["redis"]["command"]
    told = dict(zip(command[1::2], command[2::2], strict=True))
    assert told["--appendonly"] == "yes"
    assert told["--maxmemory-policy"] == "noeviction"


def test_a_worker_that_will_not_start_is_not_restarted() -> None:
    (prevented,) = re.findall(r"^RestartPreventExitStatus=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert str(MISCONFIGURED) in prevented.split()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    # The one thing that systemd looks for on this machine.
    unit.write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text()))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def _compose() -> Any:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())
