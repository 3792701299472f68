import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omkl.errors import InputError
from omkl.methods import Gossip
from omkl.node.inputs import MOST_BYTES, Bad, Csv, Detected, HeaderError, Sample, parse_json, read
from omkl.node.learning import Learning
from omkl.quantizers import Nearest


def rows(text: str, inputs: int = 2, label: str | None = None) -> list[tuple[int, Sample | Bad]]:
    return list(read(io.BytesIO(text.encode()), Csv(inputs, label)))


def samples(text: str, inputs: int = 2, label: str | None = None) -> list[tuple[list[float], Any]]:
    found = [sample for _, sample in rows(text, inputs, label)]
    assert all(isinstance(sample, Sample) for sample in found), found
    return [(sample.x, sample.y) for sample in found if isinstance(sample, Sample)]


@pytest.mark.parametrize(
    ("text", "label", "expected"),
    [
        ("1,2,-1\n3,4,1\n", None, [([1, 2], -1), ([3, 4], 1)]),
        ("u,v,w\n1,2,-1\n", None, [([1, 2], -1)]),
        ("y,u,v\n-1,1,2\n,3,4\n", None, [([1, 2], -1), ([3, 4], None)]),
        ("u,w,v\n1,-1,2\n", "w", [([1, 2], -1)]),
        ("u,v\n1,2\n", None, [([1, 2], None)]),
        ("1,2,\n1,2\n\n 3, 4, 1\r\n", None, [([1, 2], None), ([1, 2], None), ([3, 4], 1)]),
        ('\ufeff"u","v","y"\n"1","2","1"', None, [([1, 2], 1)]),
    ],
)
def test_csv(text: str, label: str | None, expected: Any) -> None:
    assert samples(text, label=label) == expected


def test_the_first_line_tells_csv_from_json() -> None:
    header = rows_detected("east [m],north,y\n1,2,1\n")
    assert header == [(2, Sample([1, 2], 1))]
    assert rows_detected("1,2,1\n") == [(1, Sample([1, 2], 1))]
    # The first line is cut off, as by tail: the second tells.
    cut, whole = rows_detected('2, 3], "y": 1}\n{"x": [1, 2], "y": 1}\n')
    assert (type(cut[1]), whole[1]) == (Bad, Sample([1, 2], 1))


def rows_detected(text: str) -> list[tuple[int, Sample | Bad]]:
    return list(read(io.BytesIO(text.encode()), Detected(Csv(2))))


@pytest.mark.parametrize("banner", ["sensor v2, ready", "sensor v2, ready, ok"])
def test_what_a_sensor_says_first_does_not_make_its_json_csv(banner: str) -> None:
    whole = [(2, Sample([1, 2], 1)), (3, Sample([3, 4]))]
    assert rows_detected(banner + '\n{"x": [1, 2], "y": 1}\n{"x": [3, 4]}\n') == whole
    (_, torn), (_, row), (_, late) = rows_detected(banner + '\n{"x": [1,\n1,2,1\n{"x": [1, 2]}\n')
    assert (type(torn), row, type(late)) == (Bad, Sample([1, 2], 1), Bad)  # a row of CSV decides for good


def test_half_a_row_at_the_end_is_no_sample_without_a_label() -> None:
    *_, (number, half) = rows("0.5,1,1\n0.5,1,-1\n0.25,1")
    assert (number, type(half)) == (3, Bad)
    assert isinstance(half, Bad)
    assert half.why.startswith("the last line is '0.25,1' without an end; the rows before have more columns")
    for text in ("0.5,1,1\n0.25,1\n", "0.5,1\n0.25,1", "0.5,1,1\n0.25,1,", "0.5,1,1\n  "):
        assert all(isinstance(sample, Sample) for _, sample in rows(text))
    unlabelled = rows_detected('{"x": [1, 2], "y": 1}\n{"x": [1, 2]}')
    assert all(isinstance(sample, Sample) for _, sample in unlabelled)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("y,east,north\n1,2,warm\n", "north is 'warm'"),
        ("y,east,north\n1,,2\n", "east is ''"),
        ("1,2,3\n1,nan,3\n", "column 2 is 'nan'"),
        ("1,2,3\n1,2,warm\n", "column 3 is 'warm'; a cell is a finite number; leave it empty if there is no label"),
    ],
)
def test_a_bad_cell_has_the_name_of_its_column(text: str, says: str) -> None:
    (*_, (_, bad)) = rows(text)
    assert isinstance(bad, Bad)
    assert bad.why.startswith(says)


def test_csv_of_several_values() -> None:
    text = "u,y,y2,v\n1,5,6,2\n3,,,4\n1,5,,2\n"
    found = [sample for _, sample in read(io.BytesIO(text.encode()), Csv(2, columns=2))]
    assert found[:2] == [Sample([1, 2], [5, 6]), Sample([3, 4])]
    assert isinstance(found[2], Bad)
    assert list(read(io.BytesIO(b"1,2,5,6\n"), Csv(2, columns=2))) == [(1, Sample([1, 2], [5, 6]))]
    with pytest.raises(HeaderError, match="2 inputs and 2 columns of a label are wanted"):
        list(read(io.BytesIO(b"u,v,y\n"), Csv(2, columns=2)))


@pytest.mark.parametrize(
    ("text", "label", "says"),
    [
        ("1,2,1\n", "w", "no header; the label is to be 'w'"),
        ("u,v,y\n", "w", "unknown column 'w'; known: u, v, y"),
        ("u,v,w,y\n", None, "a header of 4 columns; 2 inputs and a label"),
    ],
)
def test_a_header_that_does_not_fit_ends_the_stream(text: str, label: str | None, says: str) -> None:
    with pytest.raises(HeaderError, match=says):
        rows(text, label=label)


def test_bad_lines_have_numbers_and_do_not_end_the_stream() -> None:
    found = rows("u,v,y\n1,2,1\nx,2,1\n1,2,3,4\n1\n5,6,-1\n")
    assert [number for number, sample in found if isinstance(sample, Bad)] == [3, 4, 5]
    assert found[-1] == (6, Sample([5.0, 6.0], -1.0))
    unlabelled = rows("y,u,v\n1,2\n")  # the label is first: which column lacks cannot be told
    assert isinstance(unlabelled[0][1], Bad)


def test_json_lines() -> None:
    good = b'{"x": [1, 2], "y": 1}\n\n{"y": null, "x": [3, 4]}\n{"x": [5]}\n'
    text = good + b'null\n{"x": 1}\n{"x": [1], "z": 2}\n{"x"\n\xff\n'
    found = list(read(io.BytesIO(text), parse_json))
    assert found[:3] == [(1, Sample([1, 2], 1)), (3, Sample([3, 4], None)), (4, Sample([5], None))]
    assert [number for number, sample in found if isinstance(sample, Bad)] == [5, 6, 7, 8, 9]


def test_a_line_without_an_end_is_one_bad_line() -> None:
    text = b"[" * (2 * MOST_BYTES + 5) + b"\n" + b'{"x": [1]}'
    (first, bad), (second, good) = read(io.BytesIO(text), parse_json)
    assert (first, second, good) == (1, 2, Sample([1]))
    assert isinstance(bad, Bad)
    assert str(MOST_BYTES) in bad.why


@given(st.binary(max_size=300))
def test_any_bytes_are_samples_or_bad_lines(data: bytes) -> None:
    lines = data.count(b"\n") + 1
    for parse in (parse_json, Csv(2)):
        try:
            found = list(read(io.BytesIO(data), parse))
        except HeaderError:
            continue
        numbers = [number for number, _ in found]
        assert numbers == sorted(set(numbers))
        assert set(numbers) <= set(range(1, lines + 1))


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=6))
def test_any_json_is_taken_or_refused_with_a_reason(value: Any) -> None:
    learning = Learning(Gossip(features=2, quantizer=Nearest(step=2.5)), inputs=2, seed=0, index=0)
    for text in (json.dumps({"x": value}), json.dumps({"x": [0, 1], "y": value})):
        try:
            sample = parse_json(text)
            x = learning.inputs(sample.x)
            y = None if sample.y is None else learning.targets(sample.y)
        except InputError:
            continue
        assert x.shape == (2,)
        assert np.isfinite(x).all()
        assert y is None or y.tolist() in ([-1], [1])


@pytest.mark.parametrize("label", [1e39, 10**400, [1, 2], [[1], 2], "a", float("nan")])
def test_a_label_that_would_break_the_model_is_refused(label: Any) -> None:
    learning = Learning(Gossip(loss="squared", features=2, quantizer=None), inputs=2, seed=0, index=0)
    with pytest.raises(InputError):
        learning.targets(label)


@pytest.mark.parametrize("compiled", [False, True])
def test_an_input_without_features_is_refused(compiled: bool) -> None:
    learning = Learning(Gossip(features=8, quantizer=None), inputs=2, seed=0, index=0, compiled=compiled)
    assert learning.features.frequencies is not None
    widest = np.abs(learning.features.frequencies).reshape(-1, 2)
    for one in np.vstack([np.sign(learning.features.frequencies.reshape(-1, 2)), [[1, -1]]]):
        with pytest.raises(InputError, match=r"beyond .* there are no features in float32; scale the inputs"):
            learning.inputs(3.4e38 * one)
        largest_taken = 3.4e38 / (2 * max(1.0, widest.sum(axis=1).max()))
        with np.errstate(all="raise"):
            assert np.isfinite(learning.predict(learning.inputs(0.99 * largest_taken * one))).all()
    scaled = Learning(Gossip(features=8, quantizer=None), inputs=2, seed=0, index=0, standardize=True)
    scaled.see(scaled.inputs([3.4e38, -3.4e38]))  # its features are those of clipped deviations
    assert np.isfinite(scaled.predict(scaled.inputs([3.4e38, 0]))).all()
