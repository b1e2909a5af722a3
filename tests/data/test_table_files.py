"""Tables of csv, tsv and Parquet: what is read, and every fault with its place."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from metaforge import optional
from metaforge.errors import DataError
from metaforge.table_files import column_names, read_table


def csv(tmp_path: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(path: Path, **more) -> list[str]:
    with pytest.raises(DataError) as caught:
        read_table(path, **more)
    return [line.removeprefix(f"{path}: ") for line in str(caught.value).split("\n")]


def test_columns_have_the_type_of_their_cells(tmp_path):
    table = read_table(csv(tmp_path, "a,b,label\n1,0.5,cat\n-2,1e-3,dog\n"))
    assert list(table.columns) == ["a", "b", "label"]
    assert table.columns["a"].tolist() == [1, -2]
    assert table.columns["a"].dtype == np.int64
    assert table.columns["b"].tolist() == [0.5, 0.001]
    assert table.columns["label"].tolist() == ["cat", "dog"]
    assert len(table) == 2


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a,b\n1,2\n", "t.csv"),
        ("\ufeffa,b\n1,2\n", "t.csv"),
        ("a;b\n1;2\n", "t.csv"),
        ("a\tb\n1\t2\n", "t.csv"),
        ("a\tb\n1\t2", "t.tsv"),
        ('"a","b"\r\n"1"," 2 "\r\n\r\n', "t.CSV"),
        ("a,b\r1,2\r", "t.csv"),
    ],
)
def test_marks_separators_quotes_and_line_ends(tmp_path, text, name):
    table = read_table(csv(tmp_path, text, name))
    assert {name: values.tolist() for name, values in table.columns.items()} == {"a": [1], "b": [2]}


def test_quoted_fields_hold_separators_and_lines(tmp_path):
    table = read_table(csv(tmp_path, 'a,label\n1,"x, ""y""\nz"\n2,w\n'))
    assert table.columns["label"].tolist() == ['x, "y"\nz', "w"]


def test_only_some_columns_are_read(tmp_path):
    path = csv(tmp_path, "a,b\n1,\n2,\n")
    assert list(read_table(path, only=["a"]).columns) == ["a"]
    assert column_names(path) == ["a", "b"]
    assert refused(path, only=["aa"]) == ["no column aa; did you mean 'a'?; it has a, b"]


def test_many_rows_are_one_column(tmp_path):
    rows = "".join(f"{number},{number % 3}.5\n" for number in range(3000))
    table = read_table(csv(tmp_path, f"a,b\n{rows}"))
    assert table.columns["a"].tolist() == list(range(3000))
    assert table.columns["b"][-1] == 2999 % 3 + 0.5


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("1 2 3", [1, 2, 3]),
        ("1 007 3", ["1", "007", "3"]),
        ("1 2 x", ["1", "2", "x"]),
        ("1.5 2 nan", ["1.5", "2", "nan"]),
        ("1_0 2 3", ["1_0", "2", "3"]),
        ("99999999999999999999 1 2", ["99999999999999999999", "1", "2"]),
        ("9007199254740993 9007199254740992 1", [9007199254740993, 9007199254740992, 1]),
    ],
)
def test_text_is_numbers_only_where_nothing_is_lost(tmp_path, cells, expected):
    path = csv(tmp_path, "label\n" + "\n".join(cells.split()) + "\n")
    assert read_table(path, text=["label"]).columns["label"].tolist() == expected


def test_every_fault_is_told_with_its_place(tmp_path):
    path = csv(
        tmp_path,
        'a;label\n1;"two\nlines"\n1,5;x\nNaN;y\n;z\n1;2;3\n4\n5;\ninf;u\n1;v\n2;v\n3;v\n4;v\n',
    )
    assert refused(path, text=["label"]) == [
        "line 7: 3 fields, expected 2",
        "line 8: 1 fields, expected 2",
        "line 4: column a holds 1,5, a decimal comma; write 1.5",
        "line 5: column a holds 'NaN', expected a finite number",
        "line 6: column a is empty; give it a value, or leave the row out",
        "line 10: column a holds 'inf', expected a finite number",
        "line 9: column label is empty; give it a value, or leave the row out",
    ]


def test_faults_beyond_many_are_counted(tmp_path):
    rows = "".join(f"{number},1\n" for number in range(400)) + "x,1\n" * 203
    lines = refused(csv(tmp_path, f"a,b\n{rows}"))
    assert len(lines) == 201
    assert lines[-1] == "and 3 more faults"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "line 1 is empty; expected the names of the columns"),
        ("1,2\n3,4\n", "line 1 holds numbers alone, no names"),
        ("a,a\n1,2\n", "line 1: two columns are named a"),
        ("a,\n1,2\n", "line 1: column 2 has no name"),
        ("a,b\n", "has no rows below the names of its columns"),
        ('a,b\n1,"2\n', "line 2: cannot be read from here on"),
        (b"a,b\n1,2\n3,\xe9\n", "line 3: byte 0xe9 is no UTF-8; save the file as UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "is no UTF-8 text (UTF-16"),
    ],
)
def test_files_that_are_no_tables(tmp_path, text, expected):
    (line,) = refused(csv(tmp_path, text))
    assert expected in line


def test_files_that_are_not_there_or_of_another_kind(tmp_path):
    assert "no such file" in refused(tmp_path / "t.csv")[0]
    assert "ends in .csv, .tsv, .parquet" in refused(csv(tmp_path, "a", "t.xlsx"))[0]


def test_parquet_without_pyarrow_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(optional, "find_spec", lambda name: None)
    first, second, third = refused(csv(tmp_path, "", "t.parquet"))
    assert "pyarrow is not installed" in first
    assert second.strip() == "pip install 'metaforge[parquet]'"
    assert third == "or save the table as csv"


needs_pyarrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow"
)


def parquet(tmp_path: Path, **columns) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


@needs_pyarrow
def test_parquet_columns(tmp_path):
    import pyarrow

    path = parquet(
        tmp_path,
        a=[1, 2, 3],
        b=pyarrow.array([0.5, 1, 2], pyarrow.float32()),
        label=pyarrow.array(["x", "y", "x"]).dictionary_encode(),
        seen=[True, False, True],
        embedding=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    )
    columns = read_table(path).columns
    assert column_names(path) == list(columns) == ["a", "b", "label", "seen", "embedding"]
    assert columns["a"].dtype == columns["seen"].dtype == np.int64
    assert columns["b"].dtype == np.float64
    assert columns["label"].tolist() == ["x", "y", "x"]
    assert columns["embedding"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert list(read_table(path, only=["b"]).columns) == ["b"]


@needs_pyarrow
def test_faults_of_parquet(tmp_path):
    import datetime

    path = parquet(
        tmp_path,
        a=[1, None, 3],
        when=[datetime.date(2020, 1, 1)] * 3,
        embedding=[[1.0], [3.0, 4.0], [5.0, 6.0]],
    )
    assert refused(path) == [
        "column a has 1 empty cells, first in row 1; fill or drop the rows",
        "column when holds date32[day]; expected numbers, texts or lists of numbers",
        "column embedding holds lists of 1 to 2 numbers; expected one length",
    ]
    path = parquet(tmp_path, a=[1.0, float("nan")], b=[[1.0], [float("inf")]])
    assert refused(path) == [
        "row 1: column a is NaN or infinite",
        "row 1: column b is NaN or infinite",
    ]
    assert refused(parquet(tmp_path, a=[])) == ["has no rows"]


@needs_pyarrow
def test_a_damaged_parquet_file(tmp_path):
    path = parquet(tmp_path, a=list(range(1000)))
    path.write_bytes(path.read_bytes()[:-100])
    assert "no whole Parquet file" in refused(path)[0]
