"""``arrays``: labels, groups, splits and numbers of one's own data, and what is wrong with them."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
import torch

import metaforge
from metaforge.cli.validate import described
from metaforge.components import Context
from metaforge.errors import DataError, RecipeError
from metaforge.recipe import load as load_recipe
from metaforge.registry import get
from metaforge.testing import datasets as laws
from metaforge_arrays.layout import check
from metaforge_arrays.options import ArraysOptions
from metaforge_arrays.source import load

CLASSES, ROWS = 25, 8
SMALL = {"ways": 3, "shots": 1, "queries": 2}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(CLASSES * ROWS, 4)).astype(np.float32)
Y = RNG.permutation(np.repeat(np.arange(CLASSES), ROWS))


def make(context: Context | None = None, **options):
    given = {"x": X, "y": Y, **SMALL, **options}
    return load(ArraysOptions(**given), context or Context())


def problems(**options) -> list[str]:
    return check(ArraysOptions(**{"x": X, "y": Y, **SMALL, **options}), Context())


def rows_of(source, split="train", n=50) -> dict[str, set[int]]:
    """The rows seen of each class."""
    seen: dict[str, set[int]] = {}
    for task in range(n):
        told = source.describe_task(split, task)
        for name, support, query in zip(
            told["classes"], told["support"], told["query"], strict=True
        ):
            seen.setdefault(name, set()).update(support, query)
    return seen


def save(tmp_path, **arrays):
    path = tmp_path / "data.npz"
    np.savez(path, **{"X": X, "y": Y, **arrays})
    return path


# -- one line ------------------------------------------------------------------------


def test_own_arrays_in_one_line():
    source = metaforge.create("dataset", "arrays", x=X, y=Y, ways=3, queries=2)
    assert source.summary() == {
        "name": "in memory",
        "train": "16 classes",
        "val": "4 classes",
        "test": "5 classes",
    }
    batch = source.batch("test", range(4))
    assert batch.support_x.shape == (4, 3, 4)
    told = source.describe_task("test", 2)
    assert torch.equal(batch.support_x[2], torch.from_numpy(X[np.ravel(told["support"])]))


def test_own_file_in_one_line(tmp_path):
    source = metaforge.create("dataset", "arrays", path=save(tmp_path), ways=3, queries=2)
    laws.assert_same(
        source.batch("train", range(50)), make().batch("train", range(50)), "file and memory"
    )
    assert source.fingerprint == make().fingerprint
    assert source.summary()["name"] == "data.npz"


def test_torch_tensors_serve_as_arrays():
    source = make(x=torch.from_numpy(X).requires_grad_(), y=torch.from_numpy(Y))
    assert source.fingerprint == make().fingerprint


def test_every_law():
    groups = np.arange(CLASSES) % 2
    laws.check_task_source(
        lambda seed: make(
            Context(seed=seed),
            group=groups,
            within=0.5,
            split=np.arange(CLASSES) % 3,
            sample_group=np.arange(len(Y)) % 5,
            features=X**2,
            normalize="l2",
            shots=[1, 2],
        ),
        sample_groups=np.arange(len(Y)) % 5,
    )


# -- labels --------------------------------------------------------------------------

LABELS = {
    "contiguous": np.arange(CLASSES),
    "with gaps": np.arange(CLASSES) * 7 + 3,
    "negative": np.arange(CLASSES) - 12,
    "whole floats": np.arange(CLASSES) * 2.0,
    "floats": np.arange(CLASSES) / 2 + 0.25,
    "strings": np.array([f"kind {chr(97 + c)}" for c in range(CLASSES)]),
    "bytes": np.array([f"kind {chr(97 + c)}" for c in range(CLASSES)]).astype("S"),
    "unsigned": np.arange(CLASSES).astype(np.uint8) + 200,
    "objects: strings": np.array([f"kind {chr(97 + c)}" for c in range(CLASSES)], dtype=object),
    "objects: ints": np.array([10**12 + c for c in range(CLASSES)], dtype=object),
    "objects: NumPy's ints": np.array([np.int16(c) for c in range(CLASSES)], dtype=object),
    "objects: floats": np.array([c / 2 + 0.25 for c in range(CLASSES)], dtype=object),
    "objects: bytes": np.array([f"kind {chr(97 + c)}".encode() for c in range(CLASSES)], object),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_labels_of_any_kind_are_numbered_in_their_order(labels):
    source, plain = make(y=labels[Y]), make()
    laws.assert_same(
        source.batch("train", range(200)), plain.batch("train", range(200)), "labels do not matter"
    )
    names = source.describe_task("train", 0)["classes"]
    classes = [int(name) for name in plain.describe_task("train", 0)["classes"]]
    expected = labels[classes]
    if labels.dtype.kind == "S" or isinstance(labels[0], bytes):
        expected = expected.astype("S").astype(str)
    elif labels.dtype.kind == "f" and (labels % 1 == 0).all():
        expected = expected.astype(int)
    assert names == list(map(str, expected))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.where(np.arange(len(Y)) == 7, np.nan, Y), "1 labels are NaN or infinite, first rows 7"),
        (RNG.normal(size=len(Y)), "looks like a regression target"),
        (np.eye(CLASSES)[Y], r"y has shape \[200, 25\]; expected class labels"),
        (np.array([object()] * len(Y)), r"y holds objects: object \(200\); expected one kind"),
        (np.array(["a", *Y[1:]], object), r"y holds objects: int \(199\), str \(1\); expected one"),
        (np.array([None, *map(str, Y[1:])], object), r"str \(199\), NoneType \(1\)"),
        (np.array([True, *Y[1:]], object), r"int \(199\), bool \(1\)"),
        (np.array([2**70, *Y[1:]], object), "y has a number beyond 64 bits"),
        ([[1], [2, 3]], "y does not make one array"),
        (Y[:-1], r"x has shape \[200, 4\], but y has 199 rows"),
        (Y[:0], r"y has shape \[0\]"),
    ],
)
def test_what_is_not_a_class_label_a_row_is_named(y, message):
    with pytest.raises(DataError, match=message):
        make(y=y)
    with pytest.raises(DataError, match=message):
        raise DataError("\n".join(problems(y=y)))


def test_class_names_by_order_or_by_label():
    names = np.array([f"n{c}" for c in range(CLASSES)])
    assert set(rows_of(make(class_names=names))) <= set(names)
    gaps = Y * 2
    by_label = np.array([f"n{c}" for c in range(2 * CLASSES)])
    told = make(y=gaps, class_names=by_label).describe_task("train", 0)["classes"]
    plain = make(y=gaps).describe_task("train", 0)["classes"]
    assert told == [f"n{label}" for label in plain]
    with pytest.raises(DataError, match="class_names has 3 entries, but y has 25 classes"):
        make(class_names=["a", "b", "c"])


# -- splits --------------------------------------------------------------------------


def classes_of(source) -> dict[str, set[int]]:
    return {
        split: {int(name) for name in rows_of(source, split, 200)}
        for split in ("train", "val", "test")
    }


def test_shares_divide_the_classes_and_the_seed_of_the_division_is_its_own():
    split = classes_of(make())
    assert [len(some) for some in split.values()] == [16, 4, 5]
    assert set.union(*split.values()) == set(range(CLASSES))
    assert classes_of(make(Context(seed=5))) == split
    assert classes_of(make(split_seed=5)) != split


SPLIT = np.arange(CLASSES) % 3
WORDS = np.array(["train", "validation", "test"])


@pytest.mark.parametrize(
    "split",
    [SPLIT, SPLIT.astype(float), SPLIT.astype(str), SPLIT[Y], WORDS[SPLIT], WORDS[SPLIT][Y],
     WORDS[SPLIT].astype("S"), SPLIT.tolist()],
    ids=["numbers", "floats", "digits", "rows", "words", "words of rows", "bytes", "list"],
)  # fmt: skip
def test_a_split_for_each_class_or_each_row(split):
    expected = {name: set(np.flatnonzero(number == SPLIT)) for number, name in
                enumerate(("train", "val", "test"))}  # fmt: skip
    assert classes_of(make(split=split)) == expected


def test_split_values_say_what_a_split_s_own_values_mean():
    given = np.array(["back", "more", "eval", "unused", "hold"])[np.arange(CLASSES) % 5]
    values = {"train": ["back", "more"], "val": "hold", "test": "eval"}
    split = classes_of(make(split=given, split_values=values))
    number = np.arange(CLASSES) % 5
    assert split["train"] == set(np.flatnonzero(number < 2))
    assert split["test"] == set(np.flatnonzero(number == 2))
    assert split["val"] == set(np.flatnonzero(number == 4))


def test_val_share_takes_training_classes_where_split_has_no_val():
    lake = np.arange(CLASSES) % 2
    options = {"split": lake, "split_values": {"train": 0, "test": 1}}
    split = classes_of(make(**options, val_share=0.3))
    assert [len(some) for some in split.values()] == [9, 4, 12]
    assert split["train"] | split["val"] == set(np.flatnonzero(lake == 0))
    assert problems(**options) == [
        "arrays: no class is in split 'val'; each of train, val, test needs some; "
        "val_share takes some of train's"
    ]


def test_whole_groups_are_divided():
    groups = np.arange(CLASSES) // 5
    split = classes_of(make(group=groups, split=[0.6, 0.2, 0.2], split_by="group", ways=2))
    assert [len(some) for some in split.values()] == [15, 5, 5]
    for some in split.values():
        assert all(sum(groups[c] == groups[d] for d in some) == 5 for c in some)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": np.arange(len(Y)) % 3}, r"several splits \(25 classes, first '0'\)"),
        ({"split": SPLIT + 1}, "split holds 1, 2, 3; expected 0, 1, 2"),
        ({"split": SPLIT, "split_values": {"train": "a"}}, "names a, but split holds 0, 1, 2"),
        ({"split": SPLIT, "val_share": 0.5}, "this one has it"),
        ({"split": [0, 1, 2, 0]}, "split has 4 entries, but y has 25 classes"),
        ({"split": [1.0, 0.0, 0.0]}, "no class is in split 'val'"),
        ({"group": [0, 1]}, "group has 2 entries"),
        ({"group": SPLIT, "group_names": ["a"]}, "group_names has 1 names, but group holds 0 to 2"),
        ({"sample_group": np.arange(3)}, r"sample_group has shape \[3\], but y has 200 rows"),
        ({"group": 3}, r"group has shape \[\]; expected \[C\], one for each class"),
        ({"class_names": [["a"]] * CLASSES}, r"class_names has shape \[25, 1\]; expected \[C\]"),
        *(
            ({option: np.array(["a", 1] * n, object)[:-1]}, rf"{option} holds objects: str \(")
            for option, n in {
                "split": 13,
                "group": 13,
                "class_names": 13,
                "sample_group": 100,
            }.items()
        ),
    ],
)
def test_splits_and_groups_that_do_not_fit_are_named(options, message):
    with pytest.raises(DataError, match=message):
        make(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": [0.5, 0.2, 0.2]}, "do not sum to 1"),
        ({"split": [1.5, -0.3, -0.2]}, "do not sum to 1"),
        ({"within": True}, "within: needs group"),
        ({"split_by": "group"}, "split_by: group: needs group"),
        ({"split_values": {"train": 0}}, "split_values: not read, as split is shares"),
        ({"split": SPLIT, "split_seed": 1}, "split_seed: not read"),
        ({"shots": [3, 1]}, r"the range \[3, 1\] is \[high, low\]"),
        ({"ways": 1}, "ways"),
        ({"shots": 0}, "shots"),
        ({"shorts": 1}, "shorts"),
    ],
)
def test_options_that_cannot_hold_are_refused(options, message):
    with pytest.raises(RecipeError, match=message):
        metaforge.create("dataset", "arrays", x=X, y=Y, **{**SMALL, **options})


# -- groups --------------------------------------------------------------------------


def test_tasks_within_a_group_and_their_group_s_name():
    groups = np.arange(CLASSES) % 2
    source = make(group=groups, group_names=["even", "odd"], within=True, split=SPLIT)
    assert source.group_names == ("even", "odd")
    for task in range(100):
        told = source.describe_task("train", task)
        parity = {int(name) % 2 for name in told["classes"]}
        assert parity == {("even", "odd").index(told["group"])}


@pytest.mark.parametrize("within", [0.0, 0.3, 1.0])
def test_groups_are_known_without_loading(within):
    group = {"group": np.arange(CLASSES) % 2, "within": within, "ways": 2}
    declared = get("dataset", "arrays").has_groups(ArraysOptions(**group))
    assert declared == bool(make(**group).group_names)


def test_half_of_the_tasks_within_a_group():
    source = make(group=np.arange(CLASSES) % 2, within=0.5, split=SPLIT)
    groups = source.groups("train", range(1000))
    assert abs((groups == -1).float().mean() - 0.5) < 0.05
    assert source.summary()["train"] == "across 9, within 9 classes"


def test_a_sample_group_stays_on_one_side():
    film = np.array([f"film {row % 4}" for row in range(len(Y))])
    drawn = laws.Drawn(make(sample_group=film), "train", range(300))
    laws.check_sample_groups(drawn, np.arange(len(Y)) % 4)
    with pytest.raises(AssertionError, match="law of sample groups"):
        laws.check_sample_groups(laws.Drawn(make(), "train", range(300)), np.arange(len(Y)) % 4)


# -- numbers -------------------------------------------------------------------------


def broken(value, *rows) -> np.ndarray:
    x = X.copy()
    x[list(rows), 1] = value
    return x


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["x", "features", "images"])
def test_rows_that_are_not_finite_are_named(value, where):
    x = broken(value, 3, 9)
    options = {where: x} if where != "images" else {"x": x.reshape(-1, 2, 2)}
    name = "features" if where == "features" else "x"
    with pytest.raises(
        DataError, match=f"2 rows of {name} hold NaN or infinite numbers, first 3, 9"
    ):
        make(**options)


def test_numbers_that_overflow_the_run_s_precision_are_named():
    x = X.astype(np.float64)
    x[5, 0] = 1e100
    make(Context(dtype="float64"), x=x)
    with pytest.raises(DataError, match="1 rows of x hold NaN or infinite numbers, first 5"):
        make(x=x)


def test_large_numbers_can_be_standardised_or_have_a_precision_that_holds_their_squares():
    with pytest.raises(DataError, match="rows of x are too large for float32"):
        make(x=X * 1e25, normalize="l2")
    large = make(x=X * 1e25, normalize="standardize").batch("train", range(20)).query_x
    usual = make(normalize="standardize").batch("train", range(20)).query_x
    assert torch.allclose(large, usual, atol=1e-5)
    for how in ("none", "l2"):
        assert problems(x=X * 1e15, normalize=how) == []
        make(Context(dtype="float64"), x=X * 1e25, normalize=how)


def test_rows_of_zeros_have_no_direction():
    x = X.copy()
    x[[2, 4, 6, 8, 10, 12]] = 0
    with pytest.raises(DataError, match=r"6 rows of x are all zeros, first 2, 4, 6, 8, 10, \.\.\."):
        make(x=x, normalize="l2")
    make(x=x)


def test_constant_columns_are_reported_not_refused():
    lines: list[str] = []
    x = X.copy()
    x[:, 2] = 1.0
    make(Context(report=lines.append), x=x)
    assert lines == [
        "arrays: 1 of 4 columns of x are constant, first 2: they say nothing of a class"
    ]
    make(Context(report=lines.append))
    assert len(lines) == 1


def test_rows_of_zeros_are_reported_where_nothing_normalises_them():
    lines: list[str] = []
    x = X.copy()
    x[[3, 8]] = 0.0
    make(Context(report=lines.append), x=x)
    (line,) = lines
    assert line.startswith("arrays: 2 rows of x are all zeros, first 3, 8: they have no direction")
    with pytest.raises(DataError, match=r"2 rows of x are all zeros, .* leave them out"):
        make(x=x, normalize="l2")


def test_rows_of_unit_length():
    batch = make(normalize="l2", x=X * 100).batch("train", range(50))
    assert torch.allclose(batch.query_x.norm(dim=-1), torch.ones(50, 6), atol=1e-6)


def test_columns_are_standardised_by_the_training_classes_alone():
    x = X * 3 + 5
    x[:, 2] = 1.0
    source = make(x=x, split=SPLIT, normalize="standardize")
    rows = np.flatnonzero(SPLIT[Y] == 0)
    expected = (x - x[rows].mean(0)) / np.where(np.arange(4) == 2, 1, x[rows].std(0))
    for split in ("train", "test"):
        told = source.describe_task(split, 0)
        batch = source.batch(split, [0])
        found = batch.support_x[0].numpy()
        assert np.allclose(found, expected[np.ravel(told["support"])], atol=1e-5)
    other = x.copy()
    other[SPLIT[Y] == 2] += 100  # test rows do not reach the training ones' numbers
    changed = make(x=other, split=SPLIT, normalize="standardize")
    laws.assert_same(changed.batch("train", range(50)), source.batch("train", range(50)), "no leak")


def test_features_are_a_second_view_of_the_same_rows():
    source = make(x=X.reshape(-1, 2, 2), features=X, normalize="l2")
    batch, view = source.batch("train", range(9)), source.batch("train", range(9), "features")
    assert batch.support_x.shape == (9, 3, 1, 2, 2)
    flat = batch.support_x.flatten(2)
    assert torch.allclose(view.support_x, flat / flat.norm(dim=-1, keepdim=True), atol=1e-6)


IMAGES = RNG.integers(0, 256, size=(len(Y), 5, 7, 3)).astype(np.uint8)


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        (IMAGES, (3, 5, 7)),
        (IMAGES.transpose(0, 3, 1, 2), (3, 5, 7)),
        (IMAGES[..., 0], (1, 5, 7)),
        (IMAGES[..., 0] > 100, (1, 5, 7)),
        (IMAGES[..., 0] / 255, (1, 5, 7)),
    ],
    ids=["channels last", "channels first", "grey", "bool", "floats"],
)
def test_images_get_a_channel_axis_and_lie_in_0_1(images, shape):
    source = make(x=images)
    batch = source.batch("train", range(9))
    assert source.shape.input_shape == shape
    assert batch.support_x.shape[2:] == shape
    assert batch.support_x.dtype == torch.float32
    row = source.describe_task("train", 0)["support"][0][0]
    unit = images[row] if images.dtype != np.uint8 else images[row] / 255
    if unit.shape == (5, 7, 3):
        unit = unit.transpose(2, 0, 1)
    assert np.allclose(batch.support_x[0, 0].numpy().reshape(unit.shape), unit, atol=1e-6)
    with pytest.raises(DataError, match=r"normalize: l2 is for features \[n, p\]"):
        make(x=images, normalize="l2")


def test_packed_bits_are_images():
    pixels = RNG.integers(0, 2, size=(len(Y), 5, 7)).astype(np.uint8)
    packed = np.packbits(pixels.reshape(len(Y), -1), axis=1)
    source = make(x=packed, bits=[5, 7])
    assert source.shape.input_shape == (1, 5, 7)
    row = source.describe_task("train", 0)["support"][0][0]
    assert (source.batch("train", [0]).support_x[0, 0, 0].numpy() == pixels[row]).all()
    with pytest.raises(DataError, match=r"\[6, 7\] expects uint8 rows of 6 bytes"):
        make(x=packed, bits=[6, 7])


def test_objects_that_are_numbers_serve_as_numbers():
    assert make(x=X.astype(object)).fingerprint == make().fingerprint


@pytest.mark.parametrize("shape", [(200, 0), (200, 0, 3), (200, 1, 0, 4)])
@pytest.mark.parametrize("option", ["x", "features"])
def test_rows_without_numbers_are_named(option, shape, tmp_path):
    expected = rf"{option}.* has shape \[200, {shape[1]}.*its rows hold no numbers"
    with pytest.raises(DataError, match=expected):
        make(**{option: np.zeros(shape)})
    (found,) = problems(path=save(tmp_path, empty=np.zeros(shape)), **{option: "empty"})
    with pytest.raises(DataError, match=expected):
        raise DataError(found)


@pytest.mark.parametrize("x", [X[:, 0], X.astype(complex), X.astype(str)])
def test_what_is_not_numbers_for_each_row_is_named(x):
    with pytest.raises(DataError, match=r"expected numbers, as features \[n, p\]"):
        make(x=x)


# -- files ---------------------------------------------------------------------------


def test_every_missing_array_is_listed_with_what_there_is(tmp_path):
    path = save(tmp_path, superclass=SPLIT)
    found = problems(path=path, x="x", y="Y", group="superclas")
    assert len(found) == 3
    assert f"{path} has no array 'x' (option x); it holds X, y, superclass" in found[0]
    assert "did you mean 'superclass'?" in found[2]
    with pytest.raises(DataError, match=r"no array 'x' \(option x\)"):
        make(path=path, x="x", y="y")
    assert "names an array 'X', but there is no path" in problems(x="X")[0]


def test_a_file_that_is_not_there(tmp_path):
    found = problems(path=tmp_path / "none.npz", x="X", y="y")
    assert len(found) == 1
    assert "none.npz: no such file" in found[0]


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.99])
def test_a_truncated_file_is_never_taken_for_a_whole_one(tmp_path, kept):
    path = save(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    found = problems(path=path, x="X", y="y")
    assert len(found) == 1
    assert "not a whole npz archive" in found[0]
    assert "copy the file again" in found[0]
    with pytest.raises(DataError, match="not a whole npz archive"):
        make(path=path, x="X", y="y")


def test_a_damaged_array_is_named(tmp_path):
    path = save(tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[1500] ^= 0xFF  # inside X
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"array 'X' is damaged \(Bad CRC-32"):
        make(path=path, x="X", y="y")


def test_pickled_objects_are_never_executed(tmp_path):
    path = tmp_path / "data.npz"

    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    np.savez(path, X=X, y=np.array([Bomb()] * len(Y), dtype=object))
    found = problems(path=path, x="X", y="y")
    assert "array 'y' holds Python objects, which are not read" in found[0]
    assert not (tmp_path / "exploded").exists()


def test_another_kind_of_file_is_refused(tmp_path):
    files = {name: tmp_path / name for name in ("data.npy", "data.csv", "empty.npz", "model.npz")}
    np.save(files["data.npy"], X)
    np.savetxt(files["data.csv"], X, delimiter=",")
    np.savez(files["empty.npz"])
    with zipfile.ZipFile(files["model.npz"], "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    told = {
        "data.npy": "found one bare array (npy), without labels",
        "data.csv": "found text, such as a table has",
        "empty.npz": "holds no array; ",
        "model.npz": "holds no array (its members: archive/data.pkl); ",
    }
    for name, path in files.items():
        (found,) = problems(path=path, x="X", y="y")
        assert f"{path}" in found
        assert told[name] in found
        assert "expected an npz archive, made by numpy.savez('data.npz', X=features" in found
    folder = tmp_path / "images"
    folder.mkdir()
    assert "is a folder, not an npz file" in problems(path=folder, x="X", y="y")[0]


def test_the_check_compares_lengths_without_reading_x(tmp_path):
    found = problems(path=save(tmp_path, X=X[:50]), x="X", y="y")
    assert found == ["arrays: x has shape [50, 4], but y has 200 rows; they must agree"]


def test_the_check_lists_every_class_with_too_few_rows():
    found = problems(queries=8)
    assert found[-1].startswith("split 'test': class '")
    assert "has 8 rows; needs 9 (1 support + 8 query)" in found[-1]
    assert len(found) == 11 + 4 + 5


def test_a_relative_path_starts_at_the_recipe_s_folder(tmp_path, monkeypatch):
    save(tmp_path)
    monkeypatch.setenv("MINE", "data")
    context = Context(base_dir=tmp_path)
    for path in ("data.npz", "$MINE.npz", "${MINE}.npz"):
        source = metaforge.create("dataset", "arrays", context=context, path=path, **SMALL)
        assert source.fingerprint == make().fingerprint


NUMBERS = {
    "NaN": (broken(np.nan, 7, 9), {}, "2 rows of x ('X' of {}) hold NaN or infinite numbers"),
    "infinite": (broken(np.inf, 7), {}, "1 rows of x ('X' of {}) hold NaN or infinite numbers"),
    "huge": (broken(1e30, 7, 9), {}, "2 rows of x ('X' of {}) are too large for float32, which"),
    "huge images": (
        broken(-1e30, 7).reshape(-1, 2, 2),
        {},
        "1 rows of x ('X' of {}) are too large for float32, which does not hold their squared l",
    ),
    "in images": (
        broken(np.nan, 7).reshape(-1, 2, 2),
        {},
        "1 rows of x ('X' of {}) hold NaN or infinite numbers, first 7",
    ),
    "strings": (X.astype("U8"), {}, "x ('X' of {}) has shape [200, 4] and dtype <U8; expected nu"),
    "objects": (X.astype(object), {}, "{}: array 'X' holds Python objects, which are not read"),
    "one column": (
        X[:, 0],
        {},
        "x ('X' of {}) has shape [200] and dtype float32; expected numbers",
    ),
    "the same": (X * 0 + 1, {}, "all rows of x ('X' of {}) are the same: nothing tells their cl"),
    "zeros": (
        broken(0, 7) * [0, 1, 0, 0],
        {"normalize": "l2"},
        "1 rows of x ('X' of {}) are all ze",
    ),
    "images": (
        X.reshape(-1, 2, 2),
        {"normalize": "l2"},
        "x ('X' of {}) has shape [200, 2, 2] and dtype float32: normalize: l2 is for features",
    ),
}


@pytest.mark.parametrize(("x", "options", "message"), NUMBERS.values(), ids=NUMBERS)
def test_the_check_says_what_loading_would(tmp_path, x, options, message):
    path = tmp_path / "data.npz"
    np.savez(path, X=x, y=Y)
    (found,) = problems(path=path, x="X", y="y", **options)
    assert found.startswith("arrays: " + message.format(path))
    with pytest.raises(DataError) as caught:
        make(path=path, x="X", y="y", **options)
    assert str(caught.value) == found


def test_the_check_finds_both_x_and_features(tmp_path):
    path = save(tmp_path, X=broken(np.nan, 3), F=broken(np.inf, 5))
    found = problems(path=path, x="X", y="y", features="F")
    assert [text.partition(" of ")[2].split()[0] for text in found] == ["x", "features"]


def test_the_check_knows_the_run_s_precision(tmp_path):
    path = save(tmp_path, X=X.astype(np.float64) * 1e50)
    recipe = {"data": {"use": "arrays", "path": str(path), **SMALL}, "inner": "ls"}
    with pytest.raises(RecipeError, match=r"data: arrays: 200 rows of x .* NaN or infinite"):
        load_recipe(recipe)
    assert load_recipe(recipe, ["precision=float64"]).problems() == []


def test_numbers_that_take_long_are_left_to_the_run_and_the_check_says_so(tmp_path, monkeypatch):
    path = save(tmp_path, X=broken(np.nan, 3))
    monkeypatch.setattr("metaforge_arrays.layout._MOST", X.nbytes - 1)
    recipe = {"data": {"use": "arrays", "path": str(path), **SMALL}, "inner": "ls"}
    resolved = load_recipe(recipe)
    (left,) = resolved.unchecked
    assert left.startswith(f"arrays: the 0 MiB of x ('X' of {path}) are not read here")
    assert f"note: {left}" in described(resolved)
    with pytest.raises(DataError, match="1 rows of x"):
        metaforge.run(recipe, {"output": str(tmp_path / "runs")})
    monkeypatch.setattr("metaforge_arrays.layout._MOST", X.nbytes)
    with pytest.raises(RecipeError, match="1 rows of x"):
        load_recipe(recipe)


def test_whole_numbers_are_finite_whatever_their_size(tmp_path, monkeypatch):
    monkeypatch.setattr("metaforge_arrays.layout._MOST", 1)
    lines: list[str] = []
    options = ArraysOptions(path=save(tmp_path, X=X.astype(np.int64)), **SMALL)
    assert check(options, Context(report=lines.append)) == []
    assert lines == []


def test_samples_are_told_by_their_names():
    names = [f"film {row}.png" for row in range(len(Y))]
    named, plain = make(sample_names=names), make()
    assert named.fingerprint == plain.fingerprint
    rows = plain.describe_task("test", 3)["support"]
    told = named.describe_task("test", 3)["support"]
    assert told == [[f"film {row}.png" for row in some] for some in rows]
    with pytest.raises(DataError, match=r"sample_names has shape \[3\], but y has 200 rows"):
        make(sample_names=names[:3])


def embedded(tmp_path, **columns):
    """A file as ``metaforge embed`` writes it, as far as ``arrays`` reads one."""
    origin = {
        "backbone": {"use": "pixels"},
        "fingerprint": "0",
        "images": {"channels": 1, "height": 2, "width": 2},
    }
    names = np.array([f"bird {c}/{row}.png" for row, c in enumerate(Y)])
    split = np.array(["train", "val", "test", "train"])[Y % 4]
    found = {"files": names, "split": split, "metaforge": np.array(json.dumps(origin)), **columns}
    return save(tmp_path, **{name: values for name, values in found.items() if values is not None})


def test_a_file_of_embed_says_splits_and_names(tmp_path):
    path = embedded(tmp_path, group=np.array(["a", "b"])[Y % 2])
    made = make(x="X", y="y", path=path)
    told = made.describe_task("val", 0)
    assert {int(name) % 4 for name in told["classes"]} == {1}
    assert told["support"][0][0].startswith(f"bird {told['classes'][0]}/")
    assert not check(ArraysOptions(path=path, **SMALL), Context())
    grouped = make(x="X", y="y", path=path, group="group", within=1)
    assert grouped.group_names == ("a", "b")


def test_what_is_said_beside_a_file_of_embed_holds(tmp_path):
    path = embedded(tmp_path)
    shares = make(x="X", y="y", path=path, split=[0.5, 0.25, 0.25], sample_names=None)
    plain = make(split=[0.5, 0.25, 0.25])
    assert shares.fingerprint == plain.fingerprint
    assert isinstance(shares.describe_task("val", 0)["support"][0][0], int)
    unmarked = make(x="X", y="y", path=embedded(tmp_path, metaforge=None))
    assert unmarked.fingerprint == make().fingerprint


def test_groups_of_rows(tmp_path):
    by_class, by_row = (make(group=g, within=1, ways=2) for g in (np.arange(CLASSES) % 2, Y % 2))
    assert by_row.fingerprint == by_class.fingerprint
    with pytest.raises(DataError, match="group differs between rows of one class"):
        make(group=np.arange(len(Y)) // 100, within=1)


def test_samples_of_two_splits_are_told():
    """Under other labels, as class and row would not tell."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 4)).astype("float32"), np.arange(120) // 12
    split = np.array(["train"] * 5 + ["val"] * 2 + ["test"] * 3)
    said: list[str] = []
    context = Context(report=said.append)
    given = {"y": y, "split": split, "ways": 2, "shots": 1, "queries": 2, "context": context}
    metaforge.create("dataset", "arrays", x=x, **given)
    assert not said
    x[y >= 7] = x[:36]
    metaforge.create("dataset", "arrays", x=x, **given)
    (line,) = said
    assert "the same samples stand in two splits (36 of both train and test)" in line
