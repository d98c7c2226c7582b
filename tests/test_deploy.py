"""The files that deploy the server: valid to the tools that read them, and in agreement with the settings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.metrics import Metrics
from server.settings import Settings
from server.settings_sources import CONFIG_VARIABLE, load_settings, variable_of
from server.startup import Startup

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
KUBERNETES = ROOT / "deploy" / "kubernetes"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]


def manifests() -> Iterator[dict[str, Any]]:
    for path in KUBERNETES.glob("*.yaml"):
        yield from yaml.safe_load_all(path.read_text(encoding="utf-8"))


DEPLOYMENT = next(found for found in manifests() if found["kind"] == "Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def variables(name: str) -> set[str]:
    """The server's variables that the file mentions."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return set(re.findall(r"\bDUOLOGUE_[A-Z_]*[A-Z]\b", text))


def accepted(*command: str | Path) -> None:
    done = subprocess.run([*command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# To the tools


def test_the_dockerfile_is_clean() -> None:
    accepted(BIN / "hadolint", "Dockerfile")


def test_the_compose_files_are_valid() -> None:
    accepted(
        BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml", "deploy/gpu.yaml"
    )


def test_the_manifests_are_valid() -> None:
    files = [path for path in KUBERNETES.glob("*.yaml") if path.name != "kustomization.yaml"]
    accepted(BIN / "kubernetes-validate", "--strict", *files)


def test_caddy_takes_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOMAIN", "voice.example.org")
    monkeypatch.setenv("TURN_DOMAIN", "turn.voice.example.org")
    monkeypatch.setenv("HOME", str(tmp_path))
    accepted(BIN / "caddy", "validate", "--config", "deploy/caddy/Caddyfile")
    accepted(BIN / "caddy", "fmt", "--diff", "deploy/caddy/Caddyfile")


def test_the_front_takes_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOMAIN", "voice.example.org")
    accepted("/usr/sbin/haproxy", "-c", "-f", "deploy/front/haproxy.cfg")


def test_the_scripts_are_scripts() -> None:
    accepted("bash", "-n", "deploy/update")
    accepted("sh", "-n", "deploy/coturn/start")


# To the settings


@pytest.mark.parametrize(
    "name",
    [
        "Dockerfile",
        "compose.yaml",
        "deploy/kubernetes/deployment.yaml",
        "deploy/kubernetes/settings.env",
        "docs/deploy.md",
    ],
)
def test_every_variable_is_a_setting(name: str) -> None:
    assert variables(name)
    assert variables(name) <= {CONFIG_VARIABLE, *map(variable_of, Settings.model_fields)}


def test_the_settings_of_the_pods_are_good_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (KUBERNETES / "settings.env").read_text(encoding="utf-8").split()
    for name, _, value in (line.partition("=") for line in lines):
        monkeypatch.setenv(name, value)
    for pair in CONTAINER["env"]:
        monkeypatch.setenv(pair["name"], pair["value"])
    settings = load_settings({})
    assert (settings.num_pipelines, settings.fetch_models) == (16, False)


def test_the_defaults_of_the_image_are_good_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in re.findall(r"^ *(?:ENV )?(DUOLOGUE_\w+)=(\S+)", DOCKERFILE, re.MULTILINE):
        monkeypatch.setenv(name, value)
    settings = load_settings({})
    assert (settings.host, settings.fetch_models) == ("0.0.0.0", True)
    assert settings.port == Settings().port
    assert f"EXPOSE {settings.port}\n" in DOCKERFILE


# To the metrics

DASHBOARD = ROOT / "deploy/watch/grafana/dashboards/duologue.json"
ALERTS = ROOT / "deploy/watch/alerts.yml"
OTHERS = {"up", "turn_total_allocations"}
"""Metrics of Prometheus itself and of coturn."""


ENDINGS = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}


def expressions() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Every sample that /metrics can have, with its labels."""
    registry = Metrics(Startup(_no_pipeline)).registry
    names: dict[str, set[str]] = {}
    for collector in registry._collector_to_names:
        labels = set(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(
                family.type, [""]
            )
            for ending in endings:
                names[family.name + ending] = labels | {"le"} | {k for s in family.samples for k in s.labels}
    return names


def _no_pipeline(_report: object) -> Any:
    raise AssertionError("nothing is loaded here")


@pytest.mark.parametrize("expression", [*expressions()])
def test_dashboard_and_alerts_ask_for_what_is_there(expression: str, exported: dict[str, set[str]]) -> None:
    asked = re.findall(r"\b(duologue_\w+|process_\w+|turn_\w+|up)\b(?:\{([^}]*)\})?", expression)
    assert asked
    for name, selectors in asked:
        assert name in exported or name in OTHERS
        labels = set(re.findall(r"(\w+)=", selectors)) - {"job"}
        assert labels <= exported.get(name, labels)


def test_the_panels_lie_side_by_side() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        taken |= cells
    assert max(x for x, _ in taken) == 23


# To each other


def test_the_proxy_leads_to_the_server() -> None:
    caddyfile = (ROOT / "deploy/caddy/Caddyfile").read_text(encoding="utf-8")
    where = SERVICES["duologue"]["environment"]
    assert f"{{$UPSTREAM:{where['DUOLOGUE_HOST']}:{where['DUOLOGUE_PORT']}}}" in caddyfile


def test_the_front_leads_to_the_proxy_and_to_the_turn_server() -> None:
    front = (ROOT / "deploy/front/haproxy.cfg").read_text(encoding="utf-8")
    caddyfile = (ROOT / "deploy/caddy/Caddyfile").read_text(encoding="utf-8")
    guide = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    ports = dict(re.findall(r"presetenv (\w+) (\d+)", front))
    assert ports["FRONT_PORT"] == "443"
    assert f"{{$HTTPS_PORT:{ports['HTTPS_PORT']}}}" in caddyfile
    assert f"--tls-port {ports['TURN_TLS_PORT']}" in guide
    assert SERVICES["coturn"]["entrypoint"][-1] == SERVICES["caddy"]["environment"]["TURN_DOMAIN"]


def test_coturn_may_start_and_read_what_is_not_its_own() -> None:
    """The image's program has a capability of its own, and does not start where that is not to be had."""
    coturn = SERVICES["coturn"]
    assert coturn["user"] == "root"
    assert {"DAC_READ_SEARCH", "NET_BIND_SERVICE"} == set(coturn["cap_add"])
    assert coturn["cap_drop"] == ["ALL"]


def test_turn_is_healthy_if_calls_could_use_it() -> None:
    """What the command tries, and when it fails, is in tests/e2e/test_turn.py."""
    check, server = SERVICES["turn-check"], SERVICES["duologue"]
    assert check["healthcheck"]["test"] == ["CMD", "duologue", "turn", "check"]
    assert [check[name] for name in ("image", "env_file")] == [server[name] for name in ("image", "env_file")]


def test_what_a_server_keeps_is_on_a_volume() -> None:
    assert "VOLUME /models /data\n" in DOCKERFILE
    assert "DUOLOGUE_KEYS_FILE=/data/keys.json" in DOCKERFILE
    assert SERVICES["duologue"]["volumes"] == ["models:/models", "data:/data"]


def test_the_update_knows_both_ports() -> None:
    ports = [SERVICES[name]["environment"]["DUOLOGUE_PORT"] for name in ("duologue", "next")]
    update = (ROOT / "deploy/update").read_text(encoding="utf-8")
    assert f"HERE=${{HERE:-{ports[0]}}} NEXT=${{NEXT:-{ports[1]}}}" in update


def test_there_is_time_for_calls_to_finish_before_the_server_is_killed() -> None:
    guide = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    (after,) = re.findall(r"must be longer by (\d+) s", guide)
    assert f"`DUOLOGUE_GRACE` and {after} s" in guide
    longest = Settings().grace + int(after)
    assert int(SERVICES["duologue"]["stop_grace_period"].removesuffix("s")) >= longest
    (waits,) = re.findall(r"monotonic\(\) \+ (\d+)", CONTAINER["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert POD["terminationGracePeriodSeconds"] - int(waits) >= longest


def test_the_second_server_starts_only_when_asked_to() -> None:
    started = [name for name, service in SERVICES.items() if "profiles" not in service]
    assert started == ["duologue", "caddy", "front", "coturn", "turn-check"]


OURS = {"duologue", "next", "turn-check"}


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in OURS])
def test_images_of_others_are_pinned(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].partition(":")
    assert "/" in image or image in ("caddy", "haproxy")
    assert re.search(r"\d+\.\d+\.\d+", tag)


def test_the_base_image_is_pinned() -> None:
    (image,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+", image)
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON_IMAGE}"}


def test_what_is_mounted_is_there_or_made_by_hand() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", [])]
    sources = [mount["source"] if isinstance(mount, dict) else mount.split(":")[0] for mount in mounts]
    folders = {source for source in sources if source.startswith(".")}
    written = "./turn/turnserver.conf"
    assert written in folders
    assert [source for source in folders - {written} if not (ROOT / source).exists()] == []
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"/.env", "/turn/turnserver.conf*"} <= set(ignored)
    assert {source for source in sources if not source.startswith(".")} == set(COMPOSE["volumes"])


def test_every_variable_of_compose_is_explained() -> None:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    guide = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    names = set(re.findall(r"\$\{([A-Z_]+)", text))
    assert {name for name in names if not re.search(rf"\b{name}\b", guide)} == set()


def test_the_manifests_are_all_in_the_kustomization() -> None:
    kustomization = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8"))
    files = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == files
    assert {image["name"] for image in kustomization["images"]} == {CONTAINER["image"]}
    assert CONTAINER["envFrom"][0]["configMapRef"]["name"] == kustomization["configMapGenerator"][0]["name"]


def test_ports_and_names_of_the_manifests_agree() -> None:
    (port,) = CONTAINER["ports"]
    assert {"name": "DUOLOGUE_PORT", "value": str(port["containerPort"])} in CONTAINER["env"]
    service, ingress = (next(x for x in manifests() if x["kind"] == kind) for kind in ("Service", "Ingress"))
    assert service["spec"]["selector"].items() <= DEPLOYMENT["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == ingress["spec"]["tls"][0]["hosts"][0]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": service["metadata"]["name"], "port": {"name": "http"}}


def test_the_service_puts_no_variables_into_the_pods() -> None:
    """A Service named duologue would set DUOLOGUE_PORT to an address."""
    assert POD["enableServiceLinks"] is False
