"""The example plugin as its users have it: installed, named in a KubeSchedulerConfiguration, in running schedulers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from licenseseats.args import GIVEN, PRODUCT, SEATS, given_seats
from licenseseats.plugin import LICENSE_POOLS

from koord.runtime.http import Health
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.outside import Outside, outside, scheduler, until


def configuration(folder: Path, **args: Any) -> Path:
    """Of which a profile says no more than: this plugin, too."""
    path = folder / "scheduler-config.yaml"
    profile = {
        "schedulerName": "koord-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "LicenseSeats", "weight": 2}]}},
        "pluginConfig": [{"name": "LicenseSeats", "args": args}],
    }
    body = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "profiles": [profile],
    }
    path.write_text(yaml.safe_dump(body), encoding="utf-8")
    return path


async def pool(world: Outside, name: str, seats: int, type_: Any = "ADDED", **selector: str) -> None:
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"product": "cad", "seats": seats, "nodeSelector": selector},
    }
    await world.publisher.publish(LICENSE_POOLS, type_, "", name, world.version(), msgspec.json.encode(body))


async def site(world: Outside) -> None:
    """Four nodes, of which the east has two, and everything listed."""
    for number in range(4):
        await world.node(f"n{number}", labels={"site": ("east", "west")[number % 2]})
    await world.listed()
    await world.publisher.listed(LICENSE_POOLS, "1")


def held(world: Outside) -> dict[str, tuple[str, int]]:
    """Who has which seat, by what was written to the pods."""
    found: dict[str, tuple[str, int]] = {}
    for body in world.pods.values():
        given = given_seats(body["metadata"]["annotations"].get(GIVEN, ""))
        if body["spec"].get("nodeName") and given is not None:
            found |= {f"{body['metadata']['name']}/{seat}": (given[0], seat) for seat in given[1]}
    return found


async def licensed(world: Outside, name: str, seats: str = "1") -> None:
    await world.pod(name, annotations={PRODUCT: "cad", SEATS: seats})


async def test_a_configured_scheduler_gives_seats(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path, installed: Path
) -> None:
    settings = SchedulerSettings(config=str(configuration(tmp_path, scoringStrategy="LeastFree")))
    async with outside(nats_url, redis_url, cluster) as world:
        await pool(world, "east", 2, site="east")
        await site(world)
        async with scheduler(nats_url, redis_url, cluster, settings) as service, aiohttp.ClientSession() as http:
            await licensed(world, "a", "2")
            await until(lambda: world.node_of("a"), "the pod is bound")
            assert world.node_of("a") in ("n0", "n2")
            assert set(held(world).values()) == {("east", 0), ("east", 1)}
            await licensed(world, "b")
            await until(lambda: world.told("b"), "nothing is free")
            text = "2 node(s) had no free license seats, 2 node(s) had no license pool of the product"
            assert text in world.told("b")[0]

            # What is not valid gets an Event, and what was in force stays.
            await pool(world, "east", -2, "MODIFIED", site="east")
            await until(lambda: world.told("east", "InvalidLicensePool"), "told")
            assert world.told("east", "InvalidLicensePool") == ["LicensePool east: spec.seats: -2 is not in 0..1000"]
            health = Health(service._host)
            try:
                url = f"http://127.0.0.1:{await health.start()}/apis/v1/plugins/LicenseSeats/pools"
                async with http.get(f"{url}/east") as answer:
                    assert await answer.json() == {
                        "product": "cad",
                        "seats": 2,
                        "free": 0,
                        "holders": {world.pods["default/a"]["metadata"]["uid"]: [0, 1]},
                    }
                async with http.get(f"{url}/north") as answer:
                    assert (answer.status, await answer.json()) == (404, {"message": "cannot find license pool north"})
            finally:
                await health.stop()

            # Another site's pool wakes the pod, and so does the end of one that had seats.
            await pool(world, "west", 1, site="west")
            await until(lambda: world.node_of("b") in ("n1", "n3"), "a pool came")
            await licensed(world, "c")
            await until(lambda: world.told("c"), "nothing is free")
            await world.delete("a")
            await until(lambda: world.node_of("c") in ("n0", "n2"), "seats came back")


async def test_two_replicas_and_one_that_takes_over_give_no_seat_twice(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path, installed: Path
) -> None:
    settings = SchedulerSettings(config=str(configuration(tmp_path)))
    async with outside(nats_url, redis_url, cluster) as world:
        await pool(world, "all", 12)
        await site(world)
        async with (
            scheduler(nats_url, redis_url, cluster, settings) as one,
            scheduler(nats_url, redis_url, cluster, settings) as two,
        ):
            await until(lambda: one._replicas.share.replicas == two._replicas.share.replicas == 2, "both are there")
            for number in range(8):
                await licensed(world, f"p{number}")
            await until(lambda: len(held(world)) == 8, "all are bound")
        # Nobody of them is there any more: what pods say of themselves is all that is left.
        async with scheduler(nats_url, redis_url, cluster, settings):
            for number in range(8, 14):
                await licensed(world, f"p{number}")
            await until(lambda: len(held(world)) == 12, "all seats are given")
            await until(lambda: sum(bool(world.told(f"p{n}")) for n in range(8, 14)) >= 2, "two pods wait")
        assert len(set(held(world).values())) == 12


def test_the_installed_package_by_itself(tmp_path: Path, site_packages: Path) -> None:
    """A process that sees nothing but what pip installed, asked whether a configuration is good."""

    def asked(path: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "koord.cli.main", "check", "scheduler-config", str(path)]
        env = {**os.environ, "PYTHONPATH": str(site_packages)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    good = asked(configuration(tmp_path))
    assert good.returncode == 0, good.stderr
    assert "LicenseSeats" in good.stdout
    bad = asked(configuration(tmp_path, defaultSeats=0))
    assert bad.returncode != 0
    path = "profiles[0].pluginConfig[LicenseSeats].args.defaultSeats"
    assert f"{path}: Invalid value: 0: must be in 1..64" in " ".join((bad.stdout + bad.stderr).split())


@pytest.mark.parametrize("text", ["east", "east:", "east:a", ":1", "east:1,,2"])
def test_what_is_no_seat(text: str) -> None:
    assert given_seats(text) is None
