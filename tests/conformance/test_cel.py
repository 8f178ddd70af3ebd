"""Expressions in CEL: what they are worth, when they have no value, which do not compile; the same on both servers.

All of them are rules of one definition: what holds lets an object in, what has no value is told by name.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conformance.client import Client
from tests.conformance.definitions import DEFINITIONS, definition
from tests.conformance.test_schemas import causes, define

RULES = "x-kubernetes-validations"
_WORD = {"type": "string", "maxLength": 40}
FIELDS: dict[str, Any] = {
    "i": {"type": "integer"},
    "n": {"type": "number"},
    "s": _WORD,
    "empty": _WORD,
    "absent": _WORD,
    "b": {"type": "boolean"},
    "l": {"type": "array", "maxItems": 5, "items": {"type": "integer"}},
    "words": {"type": "array", "maxItems": 5, "items": _WORD},
    "pairs": {
        "type": "array",
        "maxItems": 5,
        "items": {"type": "object", "properties": {"k": _WORD, "v": {"type": "integer"}}},
    },
    "m": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}},
    "deep": {
        "type": "object",
        "maxProperties": 3,
        "additionalProperties": {"type": "array", "maxItems": 3, "items": {"type": "integer"}},
    },
    "matchLabels": {"type": "object", "maxProperties": 3, "additionalProperties": _WORD},
    "match_labels": {"type": "object", "maxProperties": 3, "additionalProperties": {"type": "integer"}},
    "either": {"x-kubernetes-int-or-string": True},
    "when": {"type": "string", "format": "date-time"},
    "day": {"type": "string", "format": "date"},
    "took": {"type": "string", "format": "duration"},
    "bytes": {"type": "string", "format": "byte", "maxLength": 40},
    "x-dashed": {"type": "integer"},
    "dotted.name/path": {"type": "integer"},
    "namespace": _WORD,
    "two__lines": {"type": "integer"},
    "address": _WORD,
    "link": {"type": "string", "maxLength": 80},
    "amount": _WORD,
    "release": _WORD,
}
OBJECT: dict[str, Any] = {
    "i": 7,
    "n": 2,
    "s": "hello world",
    "empty": "",
    "b": True,
    "l": [3, 1, 2],
    "words": ["b", "a", "c"],
    "pairs": [{"k": "x", "v": 1}, {"k": "y", "v": 2}],
    "m": {"one": 1, "two": 2},
    "deep": {"a": [1, 2], "b": []},
    "matchLabels": {"a": "b"},
    "match_labels": {"a": 1},
    "either": "50%",
    "when": "2024-02-29T12:30:45.123456789Z",
    "day": "2024-02-29",
    "took": "1h30m",
    "bytes": "aGVsbG8=",
    "x-dashed": 1,
    "dotted.name/path": 2,
    "namespace": "ns",
    "two__lines": 3,
    "address": "10.1.2.3",
    "link": "https://user@example.com:8080/a%20b?x=1&y=2&x=3#end",
    "amount": "1.5Gi",
    "release": "1.2.3-rc.1+build",
}
HOLD = [
    # fields and names
    "has(self.s) && !has(self.absent) && has(self.empty)",
    "self.x__dash__dashed == 1 && self.dotted__dot__name__slash__path == 2",
    "self.__namespace__ == 'ns' && self.two__underscores__lines == 3",
    "self.matchLabels.a == 'b' && self.match_labels.a == 1 && self.matchLabels.all(k, k != '')",
    "self.?absent.orValue('none') == 'none' && self.?s.orValue('') != ''",
    "self.?absent.hasValue() == false && self.?i.value() == 7",
    "self.?absent.optMap(x, x.size()).orValue(-1) == -1 && self.?s.optMap(x, x.size()).value() == 11",
    "self.m[?'one'].orValue(0) == 1 && self.m[?'six'].orValue(0) == 0 && self.l[?9].orValue(-1) == -1",
    "optional.of(1).hasValue() && !optional.none().hasValue() && !optional.ofNonZeroValue(0).hasValue()",
    # numbers
    "self.i / 2 == 3 && -7 / 2 == -3 && -7 % 4 == -3 && self.i % 4 == 3",
    "self.n == 2.0 && self.n / 4.0 == 0.5 && type(self.n) == double && type(self.i) == int",
    "self.i > 6.5 && 1 < 1.5 && 2u < 3 && 1.0 <= 1 && dyn(1) == dyn(1.0) && dyn(1u) == dyn(1)",
    "int(2.9) == 2 && int('-12') == -12 && double('1.5') == 1.5 && uint(3) == 3u && double(3) == 3.0",
    "string(1.5) == '1.5' && string(7) == '7' && string(true) == 'true' && string(3u) == '3'",
    "0x1F == 31 && 1e3 == 1000.0 && -1 < 0",
    # texts
    "self.s.startsWith('hello') && self.s.endsWith('world') && self.s.contains('lo wo') && self.s.size() == 11",
    "size('é€😀') == 3 && 'é' < '😀' && 'a' < 'b' && 'Z' < 'a' && '\\u00e9' == 'é'",
    "self.s.matches('^h.*d$') && self.s.matches('o w') && !self.s.matches('^world') && r'\\d' == '\\\\d'",
    "self.s.find('o.w') == 'o w' && self.s.find('[0-9]+') == '' && 'a1b22'.findAll('[0-9]+') == ['1', '22']",
    "'a1b22c3'.findAll('([a-z])([0-9])') == ['a1', 'b2', 'c3'] && 'aaa'.findAll('a', 2).size() == 2",
    "self.s.indexOf('o') == 4 && self.s.lastIndexOf('o') == 7",
    "self.s.indexOf('z') == -1 && self.s.indexOf('o', 5) == 7",
    "self.s.replace('o', '0') == 'hell0 w0rld' && self.s.replace('o', '0', 1) == 'hell0 world'",
    "self.s.split(' ') == ['hello', 'world'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
    "self.s.substring(6) == 'world' && self.s.substring(0, 5) == 'hello' && self.s.charAt(4) == 'o'",
    "self.words.join('-') == 'b-a-c' && self.words.join() == 'bac' && ' x '.trim() == 'x'",
    "'ÀbC'.lowerAscii() == 'Àbc' && 'abc'.upperAscii() == 'ABC' && strings.quote('a\"b') == '\"a\\\\\"b\"'",
    "'%s is %d, %.2f, %x, %b, %o'.format(['x', 7, 2.5, 255, 5, 8]) == 'x is 7, 2.50, ff, 101, 10'",
    "'%s %s %s'.format([self.l, self.b, self.m.size()]) == '[3, 1, 2] true 2' && '%s'.format([1.5]) == '1.5'",
    "bytes('hé').size() == 3 && string(b'h\\xc3\\xa9') == 'hé' && self.bytes == b'hello'",
    # lists and maps
    "self.l.all(x, x > 0) && self.l.exists(x, x == 3) && self.l.exists_one(x, x == 1) && [].all(x, false)",
    "self.l.map(x, x * 2) == [6, 2, 4] && self.l.filter(x, x > 1) == [3, 2] && self.l.map(x, x > 1, x + 1) == [4, 3]",
    "self.l.all(i, v, v > 0 && i < 3) && self.l.exists(i, v, i == 0 && v == 3)",
    "self.l.transformList(i, v, v * i) == [0, 1, 4] && self.m.all(k, v, v > 0 && k != '')",
    "self.m.all(k, self.m[k] > 0) && 'one' in self.m && !('six' in self.m) && 3 in self.l && size(self.m) == 2",
    "self.m.one == 1 && self.m['two'] == 2 && {'a': 1, 'b': 2}.b == 2 && self.deep['a'][1] == 2",
    "self.pairs.map(p, p.k) == ['x', 'y'] && self.pairs.exists(p, p.k == 'y' && p.v == 2) && self.pairs[0].v == 1",
    "self.l + [4] == [3, 1, 2, 4] && [1] + [] == [1] && [[1], [2]] != [[2], [1]]",
    "self.l.sum() == 6 && self.l.min() == 1 && self.l.max() == 3 && [1.5, 2.5].sum() == 4.0 && self.words.max() == 'c'",
    "!self.l.isSorted() && self.l.sort() == [1, 2, 3] && self.l.sort().isSorted() && [].isSorted()",
    "self.pairs.sortBy(p, -p.v)[0].k == 'y' && self.l.reverse() == [2, 1, 3] && self.l.slice(1, 3) == [1, 2]",
    "[1, 1, 2].distinct() == [1, 2] && [[1], [2, 3]].flatten() == [1, 2, 3] && lists.range(3) == [0, 1, 2]",
    "self.words.indexOf('a') == 1 && [1, 2, 1].lastIndexOf(1) == 2 && self.words.indexOf('z') == -1",
    "sets.contains(self.l, [1, 2]) && sets.intersects(self.l, [9, 3]) && sets.equivalent(self.l, [1, 2, 3, 3])",
    "[duration('1s'), duration('2s')].sum() == duration('3s')",
    "[duration('2s'), duration('1s')].max() == duration('2s')",
    # what decides, decides
    "self.b || self.absent == 'x'",
    "!(false && self.absent == 'x') && (self.absent == 'x' || true) && !(self.absent == 'x' && false)",
    "self.b ? true : self.absent == 'x'",
    "self.l.exists(x, 6 / (x - 1) == 3) && !self.l.all(x, 6 / (x - 1) > 100)",
    # types
    "type(self.either) == string && self.either.endsWith('%') && int(self.either.replace('%', '')) == 50",
    "type(self.l) == list && type(self.m) == map && type(null) == null_type && type(type(1)) == type",
    "dyn(self.s) != dyn(1) && [1, 2] == dyn([1.0, 2.0]) && dyn({'a': 1}) == dyn({'a': 1.0})",
    # time
    "self.when > timestamp('2024-02-29T12:30:45Z')",
    "self.when.getMilliseconds() == 123 && self.when.getFullYear() == 2024",
    "self.when.getMonth() == 1 && self.when.getDate() == 29",
    "self.when.getDayOfMonth() == 28 && self.when.getDayOfWeek() == 4",
    "self.when.getHours('Asia/Tokyo') == 21 && self.when.getHours('-02:00') == 10 && self.when.getDayOfYear() == 59",
    "string(self.when) == '2024-02-29T12:30:45.123456789Z' && int(timestamp('1970-01-01T00:01:00Z')) == 60",
    "self.day == timestamp('2024-02-29T00:00:00Z') && self.when - self.day == duration('12h30m45.123456789s')",
    "self.took == duration('90m') && self.took.getHours() == 1",
    "self.took.getMinutes() == 90 && string(self.took) == '5400s'",
    "self.day + self.took < self.when && self.took + duration('30m') == duration('2h')",
    "duration('-1.5s') < duration('0')",
    # Kubernetes' own
    "quantity(self.amount) == quantity('1536Mi') && quantity('3').add(1).sub(quantity('2')).asInteger() == 2",
    "quantity(self.amount).isGreaterThan(quantity('1Gi')) && quantity('1').compareTo(quantity('1000m')) == 0",
    "isQuantity('12Ki') && !isQuantity('12Kb') && sign(quantity('-2')) == -1 && !quantity('1.5').isInteger()",
    "quantity('250m').asApproximateFloat() == 0.25 && quantity('1k').isLessThan(quantity('1Ki'))",
    "isURL(self.link) && url(self.link).getHost() == 'example.com:8080'",
    "url(self.link).getHostname() == 'example.com'",
    "url(self.link).getPort() == '8080' && url(self.link).getScheme() == 'https'",
    "url('/a b').getEscapedPath() == '/a%20b'",
    "url(self.link).getQuery()['x'] == ['1', '3'] && url(self.link).getEscapedPath() == '/a%20b' && !isURL('a b')",
    "isURL('/abs') && !isURL('../rel') && url('http://[::1]:80/').getHostname() == '::1'",
    "url('https://a').getPort() == ''",
    "ip(self.address).family() == 4 && isIP('::1') && !isIP('10.0.0.256')",
    "!isIP('01.2.3.4') && !isIP('::ffff:1.2.3.4')",
    "ip.isCanonical('2001:db8::1') && !ip.isCanonical('2001:DB8::1') && string(ip('2001:DB8::1')) == '2001:db8::1'",
    "ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified() && ip('169.254.1.1').isLinkLocalUnicast()",
    "ip('224.0.0.1').isLinkLocalMulticast() && ip('8.8.8.8').isGlobalUnicast() && !ip('224.0.0.1').isGlobalUnicast()",
    "cidr('10.0.0.0/8').containsIP(self.address) && cidr('10.0.0.0/8').containsIP(ip('10.9.9.9')) && isCIDR('::/0')",
    "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
    "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')",
    "cidr('10.1.2.3/8').prefixLength() == 8 && !isCIDR('10.0.0.0')",
    "string(cidr('10.1.2.3/8').ip()) == '10.1.2.3' && string(cidr('10.0.0.0/8')) == '10.0.0.0/8'",
    "semver(self.release).major() == 1 && semver('1.2.3').isGreaterThan(semver(self.release)) && !isSemver('1.2')",
    "semver('v1.2', true).minor() == 2 && semver('1.0.0-alpha.2').compareTo(semver('1.0.0-alpha.10')) == -1",
    "!format.dns1123Label().validate(self.s).hasValue() == false && !format.dns1123Label().validate('a-b').hasValue()",
    "format.dns1035Label().validate('1a').hasValue() && !format.labelValue().validate('').hasValue()",
    "format.dns1123Subdomain().validate('a..b').value().size() == 1 && format.uuid().validate('x').hasValue()",
]
HAVE_NO_VALUE = {
    "self.absent == 'x'": "no such key: absent",
    "self.m['six'] == 1": "no such key: six",
    "self.l[9] == 1": "index out of bounds: 9",
    "self.i / 0 == 1": "division by zero",
    "self.i % 0 == 1": "modulus by zero",
    "9223372036854775807 + self.i > 0": "integer overflow",
    "self.l.all(x, 1 / (x - 1) >= 0)": "division by zero",
    "quantity(self.s) == quantity('1')": None,
    "ip(self.s).family() == 4": None,
    "url(self.empty).getHost() == ''": None,
    "timestamp(self.s) == self.when": None,
    "int(self.s) == 1": None,
    "semver(self.s).major() == 1": None,
    "self.?absent.value() == 'x'": None,
}
DO_NOT_COMPILE = {
    "self.nope == 1": "<input>:1:5: undefined field 'nope'",
    "self.i + 'a' == 'b'": "<input>:1:8: found no matching overload for '_+_' applied to '(int, string)'",
    "self.i == 1.0": "<input>:1:8: found no matching overload for '_==_' applied to '(int, double)'",
    "self.s.foo()": "<input>:1:11: undeclared reference to 'foo' (in container '')",
    "self.s.startsWith(1)": "<input>:1:18: found no matching overload for 'startsWith' applied to 'string.(int)'",
    "self.l.all(x, x.y)": "<input>:1:16: type 'int' does not support field selection",
    "nope": "<input>:1:1: undeclared reference to 'nope' (in container '')",
    "self.i >": "<input>:1:9: Syntax error: mismatched input '<EOF>' expecting",
    "self.s == null": "<input>:1:8: found no matching overload for '_==_' applied to '(string, null)'",
    "has(self)": "<input>:1:5: invalid argument to has() macro",
    "self.s.all(x, true)": "<input>:1:5: expression of type 'string' cannot be range of a comprehension",
    "self.s.matches('[')": "<input>:1:16: invalid matches argument",
    "duration('1x') == self.took": "<input>:1:10: invalid duration argument",
    "timestamp('now') == self.when": "<input>:1:11: invalid timestamp argument",
    "self.words == ['a', 1]": "<input>:1:21: expected type 'string' but found 'int'",
    "self.s.matches('a') ||\n self.nope": "<input>:2:6: undefined field 'nope'",
    "cel.bind(x, 1, x == 1)": "<input>:1:1: undeclared reference to 'cel' (in container '')",
    "math.greatest(1, 2) == 2": "<input>:1:1: undeclared reference to 'math' (in container '')",
    "authorizer.path('/').check('get').allowed()": "<input>:1:1: undeclared reference to 'authorizer'",
    "self.i": None,
    "'text'": None,
}


def _definition(rules: list[str], fields: dict[str, Any] = FIELDS) -> dict[str, Any]:
    spec = {
        "type": "object",
        "properties": fields,
        RULES: [{"rule": text, "message": f"r{i}"} for i, text in enumerate(rules)],
    }
    return definition({"type": "object", "properties": {"spec": spec}})


@pytest.fixture
async def defined(client: Client) -> AsyncIterator[list[str]]:
    """The names of definitions to delete at the end."""
    names: list[str] = []
    yield names
    for name in names:
        await client.delete(f"{DEFINITIONS}/{name}")


async def _refusal(client: Client, namespace: str, defined: list[str], rules: list[str]) -> dict[str, str]:
    """What an object is refused for, by rule."""
    body = _definition(rules)
    defined.append(body["metadata"]["name"])
    await define(client, body)
    group = body["spec"]["group"]
    thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": OBJECT}
    answer = await client.post(f"/apis/{group}/v1/namespaces/{namespace}/things?dryRun=All", thing)
    if answer.status == 201:
        return {}
    assert answer.status == 422, answer.body
    told = [message for _, field, message in causes(answer.body) if field == "spec"]
    assert len(told) == len(answer.body["details"]["causes"]), answer.body
    return {text: message for i, text in enumerate(rules) for message in told if message.endswith(f" r{i}")}


@pytest.mark.since("1.35", "the functions, words and limits of CEL are those of today")
async def test_expressions_that_hold(client: Client, namespace: str, defined: list[str]) -> None:
    for first in range(0, len(HOLD), 40):
        assert await _refusal(client, namespace, defined, HOLD[first : first + 40]) == {}


@pytest.mark.since("1.34", "the functions, words and limits of CEL are those of today")
async def test_expressions_without_a_value(client: Client, namespace: str, defined: list[str]) -> None:
    told = await _refusal(client, namespace, defined, list(HAVE_NO_VALUE))
    assert told.keys() == HAVE_NO_VALUE.keys()
    for i, (text, why) in enumerate(HAVE_NO_VALUE.items()):
        assert told[text].startswith('Invalid value: "object": ') and told[text].endswith(f" evaluating rule: r{i}")
        if why is not None:
            assert told[text] == f'Invalid value: "object": {why} evaluating rule: r{i}'


@pytest.mark.since("1.35", "the functions, words and limits of CEL are those of today")
async def test_operands_of_the_wrong_type(client: Client, namespace: str, defined: list[str]) -> None:
    """What a type check cannot see, as `either` may be anything."""
    rules = ["self.either > 3", "self.either.size() == 2", "self.either + 1 == 2", "self.either in self.l || true"]
    told = await _refusal(client, namespace, defined, rules)
    words = "call arguments did not match a supported operator, function or macro signature for rule"
    assert told == {
        **{rules[i]: f"Invalid value: \"object\": 'no such overload': {words}: r{i}" for i in (0, 2)},
        rules[1]: "Invalid value: r1",
    }


@pytest.mark.since("1.34", "the functions, words and limits of CEL are those of today")
async def test_expressions_that_do_not_compile(client: Client) -> None:
    body = _definition(list(DO_NOT_COMPILE))
    refused = await client.post(DEFINITIONS, body)
    assert refused.status == 422, refused.body
    path = f"spec.validation.openAPIV3Schema.properties[spec].{RULES}"
    told = {field: message for _, field, message in causes(refused.body)}
    assert told.keys() == {f"{path}[{i}].rule" for i in range(len(DO_NOT_COMPILE))}
    for i, why in enumerate(DO_NOT_COMPILE.values()):
        message = told[f"{path}[{i}].rule"]
        wanted = f"compilation failed: ERROR: {why}" if why is not None else "cel expression must evaluate to a bool"
        assert f'"OptionalOldSelf":null}}: {wanted}' in message
