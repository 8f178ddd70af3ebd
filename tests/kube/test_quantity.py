"""Quantities against what Kubernetes' own reader answers, and laws that hold for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.kube import quantity
from koord.kube.quantity import MAX, NANO, Format, Quantity, QuantityError, milli, nano, parse, value

# text, canonical form, whole units, thousandths: recorded from apimachinery 0.34 (thousandths beyond 64 bits: exact)
KNOWN = [
    ("0", "0", 0, 0),
    ("0Ki", "0", 0, 0),
    ("-0", "0", 0, 0),
    ("+0", "0", 0, 0),
    ("00", "0", 0, 0),
    ("1", "1", 1, 1000),
    ("+1", "1", 1, 1000),
    ("-1", "-1", -1, -1000),
    ("01", "1", 1, 1000),
    ("1.", "1", 1, 1000),
    (".5", "500m", 1, 500),
    ("1.5", "1500m", 2, 1500),
    ("0.5m", "500u", 1, 1),
    ("1500m", "1500m", 2, 1500),
    ("1000m", "1", 1, 1000),
    ("999m", "999m", 1, 999),
    ("1001m", "1001m", 2, 1001),
    ("1k", "1k", 1000, 1000000),
    ("1000k", "1M", 1000000, 1000000000),
    ("1024", "1024", 1024, 1024000),
    ("1023", "1023", 1023, 1023000),
    ("1Ki", "1Ki", 1024, 1024000),
    ("1024Ki", "1Mi", 1048576, 1048576000),
    ("1.5Ki", "1536", 1536, 1536000),
    ("0.5Ki", "512", 512, 512000),
    ("0.1Ki", "102400m", 103, 102400),
    ("1.5Gi", "1536Mi", 1610612736, 1610612736000),
    ("1536Mi", "1536Mi", 1610612736, 1610612736000),
    ("2048Mi", "2Gi", 2147483648, 2147483648000),
    ("1Gi", "1Gi", 1073741824, 1073741824000),
    ("1.5G", "1500M", 1500000000, 1500000000000),
    ("1e3", "1e3", 1000, 1000000),
    ("1E3", "1e3", 1000, 1000000),
    ("1e-3", "1e-3", 1, 1),
    ("12e6", "12e6", 12000000, 12000000000),
    ("1e2", "100", 100, 100000),
    ("100e1", "1e3", 1000, 1000000),
    (".001e3", "1", 1, 1000),
    ("1E", "1E", 1000000000000000000, 1000000000000000000000),
    ("1Ei", "1Ei", 1152921504606846976, 1152921504606846976000),
    ("8Ei", "9223372036854775807", 9223372036854775807, 9223372036854775807000),
    ("7.5Ei", "7680Pi", 8646911284551352320, 8646911284551352320000),
    ("1n", "1n", 1, 1),
    ("0.1n", "1n", 1, 1),
    ("1.1n", "2n", 1, 1),
    ("1u", "1u", 1, 1),
    ("1000n", "1u", 1, 1),
    ("100000000n", "100m", 1, 100),
    ("123456789m", "123456789m", 123457, 123456789),
    ("2.5", "2500m", 3, 2500),
    ("0.000000001", "1n", 1, 1),
    ("0.0000000001", "1n", 1, 1),
    ("-1.5", "-1500m", -2, -1500),
    ("-1.5Gi", "-1536Mi", -1610612736, -1610612736000),
    ("100", "100", 100, 100000),
    ("200Mi", "200Mi", 209715200, 209715200000),
    ("128974848", "128974848", 128974848, 128974848000),
    ("129e6", "129e6", 129000000, 129000000000),
    ("129M", "129M", 129000000, 129000000000),
    ("123Mi", "123Mi", 128974848, 128974848000),
    ("250m", "250m", 1, 250),
    ("0.25", "250m", 1, 250),
    ("9223372036854775807", "9223372036854775807", 9223372036854775807, 9223372036854775807000),
    ("1Ti", "1Ti", 1099511627776, 1099511627776000),
    ("1Pi", "1Pi", 1125899906842624, 1125899906842624000),
    ("1.25Ti", "1280Gi", 1374389534720, 1374389534720000),
    ("3.14159265358979", "3141592654n", 4, 3142),
    ("1.0000000001", "1000000001n", 2, 1001),
    ("1000000", "1M", 1000000, 1000000000),
    ("1000001", "1000001", 1000001, 1000001000),
    ("5.4e-2", "54e-3", 1, 54),
    ("1e18", "1e18", 1000000000000000000, 1000000000000000000000),
    ("m", "0", 0, 0),
    ("Ki", "0", 0, 0),
    (".", "0", 0, 0),
    ("-", "0", 0, 0),
]

REFUSED = [
    "",
    "1.1.M",
    "1+1.0M",
    "0.1mi",
    "0.1am",
    "aoeu",
    ".5i",
    "1i",
    "-3.01i",
    "-3.01e-",
    " 1",
    "1 ",
    "1e",
    "1ee",
    "1e1.5",
    "0x1",
    "1_0",
    "１",
    "--1",
    "1K",
    "1Kib",
    "1e99999999999999999999",
    "Pi",
    "1" * 5000,
]


@pytest.mark.parametrize(("text", "canonical", "whole", "thousandths"), KNOWN)
def test_known_texts(text: str, canonical: str, whole: int, thousandths: int) -> None:
    found = parse(text)
    assert (found.canonical(), found.value(), found.milli()) == (canonical, whole, thousandths)
    assert (value(text), milli(text)) == (whole, thousandths)


@pytest.mark.parametrize("text", REFUSED)
def test_refused_texts_are_named_with_the_rule(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(text)
    assert f'quantity "{text[:20]}' in str(caught.value)
    with pytest.raises(QuantityError):
        nano(text)


def test_json_numbers() -> None:
    assert parse(2) == parse("2")
    assert parse(0.5).canonical() == "500m"
    assert milli(2) == 2000
    assert value(2.5) == 3
    bads: list[object] = [True, None, [], float("nan"), float("inf")]
    for bad in bads:
        with pytest.raises(QuantityError):
            parse(bad)  # type: ignore[arg-type]


def test_magnitude() -> None:
    assert parse("8Ei").value() == MAX
    assert parse("-9Ei").value() == -MAX
    assert parse(str(MAX)).value() == MAX
    for text in (str(MAX + 1), "10E", "1000E", "1e19", "-1e19", "1e999999999999"):
        with pytest.raises(QuantityError, match="2\\^63-1"):
            parse(text)
    assert parse("0e999999999").canonical() == "0"
    assert parse("1e-999999999").canonical() == "1e-9"


def test_arithmetic_keeps_the_format_of_what_is_not_zero() -> None:
    assert (parse("1Gi") + parse("512Mi")).canonical() == "1536Mi"
    assert (parse("0") + parse("1Gi")).canonical() == "1Gi"
    assert (parse("2") - parse("1500m")).canonical() == "500m"
    assert (-parse("1Ki")).canonical() == "-1Ki"
    assert (parse("512Mi") * 4).canonical() == "2Gi"
    assert parse("1") < parse("1001m") <= parse("1.001")
    assert len({parse("1"), parse("1000m"), parse("1e0")}) == 1
    assert not parse("0m")
    with pytest.raises(AttributeError):
        parse("1").nanos = 2


def test_constructors() -> None:
    assert quantity.of_milli(1500).canonical() == "1500m"
    assert quantity.of_value(4 << 30, Format.BINARY_SI).canonical() == "4Gi"
    assert quantity.of_value(4096).canonical() == "4096"


digits = st.text("0123456789", min_size=1, max_size=12)
texts = st.builds(
    lambda sign, whole, fraction, suffix: sign + whole + fraction + suffix,
    st.sampled_from(["", "+", "-"]),
    digits,
    st.one_of(st.just(""), digits.map(lambda text: "." + text)),
    st.sampled_from(["", "n", "u", "m", "k", "M", "Ki", "Mi", "Gi", "e3", "E-3", "e+6", "e-12"]),
)
quantities = st.builds(Quantity, st.integers(-MAX * NANO, MAX * NANO), st.sampled_from([*Format])) | texts.map(parse)


@given(texts)
def test_canonical_form_is_stable_and_loses_nothing(text: str) -> None:
    found = parse(text)
    again = parse(found.canonical())
    assert again == found
    assert again.canonical() == found.canonical()
    assert "." not in found.canonical()


@given(quantities)
def test_canonical_form_of_any_quantity_reads_back(found: Quantity) -> None:
    assert parse(found.canonical()) == found


@given(texts)
def test_rounding_is_up_and_less_than_one_off(text: str) -> None:
    found = parse(text)
    assert 0 <= abs(found.value()) * NANO - abs(found.nanos) < NANO
    assert 0 <= abs(found.milli()) * 10**6 - abs(found.nanos) < 10**6
    assert (value(text), milli(text), nano(text)) == (found.value(), found.milli(), found.nanos)


@given(quantities, quantities)
def test_sums_are_exact(a: Quantity, b: Quantity) -> None:
    assert (a + b).nanos == a.nanos + b.nanos
    assert (a + b) - b == a
    assert (a < b) == (a.nanos < b.nanos)


@given(st.text(max_size=12) | st.text("0123456789.+-eEinumkKMGTP", max_size=12))
def test_any_text_is_a_quantity_or_a_quantity_error(text: str) -> None:
    try:
        parse(text)
    except QuantityError as error:
        assert text in str(error)


@pytest.mark.parametrize("text", ["x" * 10**6, "1" * 999, "1e" + "9" * 10**6, "-1" * 10**6])
def test_messages_quote_the_beginning_of_what_is_long(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(text)
    assert text[:15] in str(caught.value)
    assert len(str(caught.value)) < 500
