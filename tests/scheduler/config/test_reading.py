"""The file as a whole: texts, kinds, versions, fields above the profiles (spec 10 section 2.1)."""

from typing import Any

import pytest
import yaml

from koord.scheduler.config.errors import ConfigError
from koord.scheduler.config.model import LeaderElection
from koord.scheduler.config.reading import IGNORED, read
from koord.scheduler.config.upstreamargs import NodeResourcesFitArgs
from tests.scheduler.config.documents import HEAD, configuration, problems, profile, warnings

DEEP = "[" * 200 + "]" * 200
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]" for i in range(8)
)


def test_defaults() -> None:
    found = configuration({})
    assert found.parallelism == 16
    assert found.percentage_of_nodes_to_score == 0
    assert (found.pod_initial_backoff_s, found.pod_max_backoff_s) == (1, 10)
    assert not found.delay_cache_until_active
    assert found.enable_profiling
    assert found.enable_contention_profiling
    assert found.leader_election == LeaderElection(True, 15.0, 10.0, 2.0, "leases", "kube-scheduler", "kube-system")
    assert [each.scheduler_name for each in found.profiles] == ["default-scheduler"]
    assert (found.extenders, found.ignored, found.warnings) == ((), (), ())


def test_every_field() -> None:
    found = configuration(
        {
            "parallelism": 4,
            "percentageOfNodesToScore": 30,
            "podInitialBackoffSeconds": 2,
            "podMaxBackoffSeconds": 20,
            "delayCacheUntilActive": True,
            "enableProfiling": False,
            "enableContentionProfiling": False,
            "leaderElection": {"leaderElect": False, "leaseDuration": "1m", "renewDeadline": "30s"},
            "clientConnection": {"qps": 10.5, "burst": 3, "kubeconfig": "", "contentType": "application/json"},
            "profiles": [{"schedulerName": "a", "percentageOfNodesToScore": 7}, {"schedulerName": "b"}],
            "extenders": [
                {
                    "urlPrefix": "http://extender",
                    "filterVerb": "filter",
                    "weight": 1,
                    "enableHTTPS": True,
                    "httpTimeout": "2s",
                    "managedResources": [{"name": "example.com/x", "ignoredByScheduler": True}],
                    "tlsConfig": {"insecure": True, "serverName": "f"},
                }
            ],
        }
    )
    assert (found.parallelism, found.percentage_of_nodes_to_score) == (4, 30)
    assert (found.pod_initial_backoff_s, found.pod_max_backoff_s) == (2, 20)
    assert found.delay_cache_until_active
    assert not found.enable_profiling
    assert not found.enable_contention_profiling
    assert found.leader_election.lease_duration == 60
    assert not found.leader_election.leader_elect
    assert [each.scheduler_name for each in found.profiles] == ["a", "b"]
    first = found.profile("a")
    assert first is not None
    assert first.percentage_of_nodes_to_score == 7
    assert found.profile("c") is None
    [extender] = found.extenders
    assert (extender.http_timeout, extender.enable_https) == (2.0, True)
    assert extender.ignored_by_scheduler == {"example.com/x"}
    # Without extenders nothing would be done so many times at once.
    assert found.ignored == (*IGNORED[1:], "profiles[0].percentageOfNodesToScore")
    assert configuration({"parallelism": 4}).ignored == ("parallelism",)
    first = found.profile("a")
    assert first is not None
    assert first.arguments("NodeResourcesFit", NodeResourcesFitArgs).ignored_resources == ("example.com/x",)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"parallelism": 0}, "parallelism: Invalid value: 0: should be an integer value greater than zero"),
        ({"percentageOfNodesToScore": 101}, "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]"),
        ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0"),
        (
            {"podInitialBackoffSeconds": 11},
            "podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        ({"clientConnection": {"burst": -1}}, "clientConnection.burst: Invalid value: -1: must be non-negative"),
        (
            {"leaderElection": {"leaseDuration": "10s"}},
            'leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`',
        ),
        (
            {"leaderElection": {"retryPeriod": "-1s"}},
            'leaderElection.retryPeriod: Invalid value: "-1s": must be greater than zero',
        ),
        (
            {"leaderElection": {"resourceLock": "endpoints"}},
            'leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"',
        ),
        (
            {"profiles": [{"percentageOfNodesToScore": -1}]},
            "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
        ),
        ({"profiles": [{"schedulerName": ""}]}, "profiles[0].schedulerName: Required value"),
        (
            {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
            'profiles[1].schedulerName: Duplicate value: "a"',
        ),
        (
            {"extenders": [{"urlPrefix": "http://x", "prioritizeVerb": "rate"}]},
            "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        ),
        (
            {"extenders": [{"urlPrefix": "http://x", "bindVerb": "bind"}] * 2},
            'extenders: Invalid value: "found 2 extenders implementing bind": only one extender can implement bind',
        ),
        (
            {"extenders": [{"urlPrefix": "http://x", "managedResources": [{"name": "cpu"}]}]},
            'extenders[0].managedResources[0].name: Invalid value: "cpu": is an invalid extended resource name',
        ),
        (
            {"extenders": [{"urlPrefix": "http://x", "managedResources": [{"name": "a.b/x"}, {"name": "a.b/x"}]}]},
            'extenders[0].managedResources[1].name: Invalid value: "a.b/x": duplicate extender managed resource name',
        ),
        (
            {"extenders": [{"filterVerb": "filter"}]},
            "extenders[0].urlPrefix: Required value: the URL at which the extender is called",
        ),
        (
            {"extenders": [{"urlPrefix": "extender:80/x"}]},
            'extenders[0].urlPrefix: Invalid value: "extender:80/x": must be a URL of http or https with a host',
        ),
        (
            {"extenders": [{"urlPrefix": "http://x", "httpTimeout": "-1s"}]},
            'extenders[0].httpTimeout: Invalid value: "-1s": must be zero or positive',
        ),
        (
            {"extenders": [{"urlPrefix": "https://x", "tlsConfig": {"insecure": True, "caFile": "f"}}]},
            "extenders[0].tlsConfig.insecure: Forbidden: specifying a root certificates file with the insecure flag is "
            "not allowed",
        ),
        (
            {"extenders": [{"urlPrefix": "https://x", "tlsConfig": {"certFile": "f"}}]},
            "extenders[0].tlsConfig.keyFile: Required value: a certificate and its key go together",
        ),
        (
            {"extenders": [{"urlPrefix": "https://x", "tlsConfig": {"caData": "?"}}]},
            "extenders[0].tlsConfig.caData: Invalid value: must be base64",
        ),
        ({"parallelism": "4"}, 'parallelism: Invalid value: "4": must be a whole number'),
        ({"parallelism": True}, "parallelism: Invalid value: true: must be a whole number"),
        ({"parallelism": 2**31}, "parallelism: Invalid value: 2147483648: must fit in 32 bits"),
        ({"profiles": {}}, "profiles: Invalid value: {}: must be a list"),
        ({"profiles": ["x"]}, 'profiles[0]: Invalid value: "x": must be a mapping'),
        ({"enableProfiling": "yes"}, 'enableProfiling: Invalid value: "yes": must be true or false'),
        ({"clientConnection": {"qps": "x"}}, 'clientConnection.qps: Invalid value: "x": must be a number'),
        (
            {"leaderElection": {"leaseDuration": 15}},
            "leaderElection.leaseDuration: Invalid value: 15: must be a duration in text, like 1m30s",
        ),
        (
            {"leaderElection": {"leaseDuration": "15"}},
            'leaderElection.leaseDuration: Invalid value: duration "15": "15" must be a number and one of ns us '
            "ms s m h",
        ),
    ],
)
def test_each_rule_by_its_path(content: dict[str, Any], expected: str) -> None:
    assert problems(content) == [expected]


def test_unknown_fields_are_named_everywhere_at_once() -> None:
    found = problems(
        {
            "healthzBindAddress": "x",
            "profiles": [{"plugin": {}, "plugins": {"filters": {}, "filter": {"enabled": [{"weigth": 3}]}}}],
            "leaderElection": {"lease": "x"},
        }
    )
    assert [text.partition(": unknown field; known: ")[0] for text in found] == [
        "healthzBindAddress",
        "leaderElection.lease",
        "profiles[0].plugin",
        "profiles[0].plugins.filter.enabled[0].weigth",
        "profiles[0].plugins.filters",
    ]
    assert found[3].endswith("known: name, weight")


def test_names_are_needed_when_there_are_several_profiles() -> None:
    assert problems({"profiles": [{}, {}]}) == [
        "profiles[0].schedulerName: Required value",
        "profiles[1].schedulerName: Required value",
        'profiles[1].schedulerName: Duplicate value: ""',
    ]


def test_all_profiles_sort_the_queue_alike() -> None:
    other: dict[str, Any] = {"queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Other"}]}}
    given = {"profiles": [{"schedulerName": "a"}, {"schedulerName": "b", "plugins": other}]}
    with pytest.raises(ConfigError) as error:
        configuration(given, {"Other": frozenset({"queueSort"})})
    assert str(error.value) == (
        'profiles[1].plugins.queueSort: Invalid value: ["Other"]: must be the same for all profiles'
    )
    both = {
        "profiles": [
            {"schedulerName": name, "plugins": other, "pluginConfig": [{"name": "Other", "args": {"x": name}}]}
            for name in ("a", "b")
        ]
    }
    with pytest.raises(ConfigError) as error:
        configuration(both, {"Other": frozenset({"queueSort"})})
    assert str(error.value) == (
        'profiles[1].pluginConfig.args: Invalid value: {"x": "b"}: queueSort must be the same for all profiles'
    )


@pytest.mark.parametrize("version", ["v1beta2", "v1beta3"])
def test_older_versions_are_read_as_v1(version: str) -> None:
    found = configuration(
        {
            "apiVersion": f"kubescheduler.config.k8s.io/{version}",
            "profiles": [
                {
                    "pluginConfig": [
                        {
                            "name": "InterPodAffinity",
                            "args": {
                                "apiVersion": f"kubescheduler.config.k8s.io/{version}",
                                "kind": "InterPodAffinityArgs",
                                "hardPodAffinityWeight": 5,
                            },
                        }
                    ]
                }
            ],
        }
    )
    assert found.profiles[0].args["InterPodAffinity"].hard_pod_affinity_weight == 5  # type: ignore[union-attr]
    assert found.warnings == (
        f"apiVersion: kubescheduler.config.k8s.io/{version} is read as kubescheduler.config.k8s.io/v1, with "
        f"its defaults",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("- a", 'Invalid value: ["a"]: must be a mapping'),
        ("a: b", "apiVersion: Required value: kubescheduler.config.k8s.io/v1; kind: Required value: KubeSchedulerConf"),
        (
            "apiVersion: v1\nkind: Pod",
            'apiVersion: Unsupported value: "v1": supported values: "kubescheduler.config.k8s.io/v1", ',
        ),
        ("a: b\n---\nc: d", "has 2 documents; must be one"),
        ("a: [", "not YAML: while parsing"),
        ("a: 1\nb:\n  c: 1\n  c: 2", "not YAML: while reading a mapping"),
        ("1: a", "Invalid value: 1: must be text to be a key"),
        ("a: !!binary aGk=", "a: is a bytes, which no field takes"),
        ("a: !!int x", "not YAML: ValueError"),
        ("a: !!python/object:os.system {}", "not YAML: could not determine a constructor"),
        (BOMB, "more than 100000 values, aliases counted"),
        ("a: &a [*a]", "more than 60 levels, aliases counted"),
        ("&a [*a]", "more than 60 levels, aliases counted"),
        (f"a: {DEEP}", "more than 60 levels, aliases counted"),
        ("[" * 5000, "not YAML: "),
        ("a: " + "b" * (1 << 20), "has 1048579 characters; at most 1048576"),
    ],
)
def test_texts_that_are_no_configuration(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(text, source="given.yaml")
    assert expected in str(error.value)


def test_errors_name_the_source() -> None:
    with pytest.raises(ConfigError) as error:
        read(yaml.safe_dump({**HEAD, "parallelism": 0}), source="given.yaml")
    assert str(error.value).startswith("given.yaml: parallelism: Invalid value: 0")


def test_nulls_count_as_not_given() -> None:
    assert configuration({"parallelism": None, "leaderElection": None, "profiles": None}) == configuration({})


def test_json_is_read_too() -> None:
    assert read('{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration","parallelism":3}')


def test_a_config_map() -> None:
    inner = yaml.safe_dump({**HEAD, "parallelism": 3})
    map_ = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"other": "x", "koord-scheduler-config": inner},
    }
    assert read(yaml.safe_dump(map_)).parallelism == 3
    map_["data"] = {"a": inner, "b": inner}
    with pytest.raises(ConfigError, match="must hold exactly one KubeSchedulerConfiguration, found in: a, b"):
        read(yaml.safe_dump(map_))
    map_["data"] = {}
    with pytest.raises(ConfigError, match="found in: none"):
        read(yaml.safe_dump(map_))
    map_["data"] = {"a": yaml.safe_dump({**HEAD, "parallelism": 0})}
    with pytest.raises(ConfigError) as error:
        read(yaml.safe_dump(map_), source="map.yaml")
    assert str(error.value).startswith("map.yaml: data[a]: parallelism: ")


def test_what_is_not_used_warns() -> None:
    given = {"profiles": [{"pluginConfig": [{"name": "Nonsense", "args": {"a": 1}}, {"name": "DeviceShare"}]}]}
    assert warnings(given) == [
        'profiles[0].pluginConfig[0]: arguments of "Nonsense" have no effect: there is no such plugin',
        'profiles[0].pluginConfig[1]: arguments of "DeviceShare" have no effect: the profile does not use it',
    ]
    assert "DeviceShare" not in profile(given["profiles"][0]).args


def test_fields_of_v1beta2_alone_have_no_effect() -> None:
    old = {"healthzBindAddress": "0.0.0.0:10251", "metricsBindAddress": ""}
    found = configuration({**old, "apiVersion": "kubescheduler.config.k8s.io/v1beta2"})
    assert [warning.partition(":")[0] for warning in found.warnings] == ["apiVersion", *old]
    assert [text.partition(": unknown field")[0] for text in problems(old)] == list(old)
