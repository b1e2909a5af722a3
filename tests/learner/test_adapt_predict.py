"""``adapt`` and ``predict``: a user's files in, a model and a table out; and what is wrong told."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import metaforge
from metaforge.adapted import shape_of
from metaforge.cli import main
from metaforge.errors import DamagedFile, DataError, PluginError
from metaforge.predictions import wilson
from metaforge.records import digest, load_tensors, save_tensors
from tests import sealed
from tests.learner.runs import WIDTH

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(9, WIDTH)), np.array(list("aaaabbbcc"))
QUERY = RNG.normal(size=(5, WIDTH))


def npz(folder, x=X, **arrays):
    path = folder / "support.npz"
    np.savez(path, X=x, **({"y": Y} | arrays))
    return path


def table(folder, name="support.csv", x=X, **columns):
    path = folder / name
    names = [f"f{i}" for i in range(x.shape[1])]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, *names])
        for i, row in enumerate(x):
            writer.writerow([*(value[i] for value in columns.values()), *row])
    return path


def images(folder, classes=("a", "ü", "c"), each=2, seed=0):
    rng = np.random.default_rng(seed)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for i in range(each):
            pixels = rng.integers(0, 256, (16, 16)).astype("uint8")
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def adapted(made, name, folder, support, *options):
    run, _ = made(name)
    out = folder / "model"
    assert main(["adapt", str(run), "--support", str(support), "--out", str(out), *options]) == 0
    return out


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_npz_to_predictions(made, tmp_path, capsys):
    model = adapted(made, "ls", tmp_path, npz(tmp_path))
    query = tmp_path / "query.npz"
    np.savez(query, X=QUERY)
    out = tmp_path / "p.csv"
    assert main(["predict", str(model), str(query), "--out", str(out)]) == 0
    _, learner = made("ls")
    wanted = learner.adapt(X, Y)
    found = rows(out)
    assert [row["predicted"] for row in found] == wanted.predict(QUERY).tolist()
    scores = np.array([[float(row[f"score {name}"]) for name in "abc"] for row in found])
    np.testing.assert_allclose(scores, wanted.probabilities(QUERY), atol=1e-6)
    np.testing.assert_allclose(scores.sum(1), 1)
    assert [row["input"] for row in found] == [f"row {i}" for i in range(5)]
    assert "9 samples of 3 classes, 5 steps on 8 recalled" in capsys.readouterr().out


def test_a_table_by_its_column_of_labels(made, tmp_path):
    support = table(tmp_path, id=[f"s{i}" for i in range(9)], kind=Y)
    model = adapted(made, "ls", tmp_path, support, "--label", "kind", "--steps", "0")
    _, learner = made("ls")
    wanted = learner.adapt(X, Y, 0).predict(QUERY)
    query = table(tmp_path, "query.csv", QUERY, id=list("vwxyz"))
    out = tmp_path / "p.csv"
    assert main(["predict", str(model), str(query), "--out", str(out)]) == 0
    assert [(row["input"], row["predicted"]) for row in rows(out)] == list(
        zip("vwxyz", wanted.tolist(), strict=True)
    )


def test_columns_of_a_table_are_taken_by_their_names(made, tmp_path, capsys):
    """In whatever order a further table has them, beside whatever else; one that lacks is told."""
    model = adapted(made, "ls", tmp_path, table(tmp_path, kind=Y), "--label", "kind")
    capsys.readouterr()
    names = [f"f{i}" for i in range(QUERY.shape[1])]
    plain, turned = tmp_path / "plain.csv", tmp_path / "turned.csv"
    _columns(plain, {name: QUERY[:, i] for i, name in enumerate(names)})
    columns = {name: QUERY[:, i] for i, name in reversed(list(enumerate(names)))}
    _columns(turned, {"more": np.ones(5), **columns, "word": np.array(list("vwxyz"))})
    found = []
    for path in (plain, turned):
        assert main(["predict", str(model), str(path)]) == 0
        found.append(capsys.readouterr())
    assert found[0].out == found[1].out
    assert f"{turned}: columns that are not used: more, word" in found[1].err
    del columns["f0"], columns["f2"]
    _columns(turned, columns)
    assert main(["predict", str(model), str(turned)]) == 3
    assert "no column 'f0', 'f2'; it has" in capsys.readouterr().err


def _columns(path, columns):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])


def test_a_folder_of_images_and_how_much_is_right(made, tmp_path, capsys):
    support = images(tmp_path / "support")
    model = adapted(made, "images", tmp_path, support)
    out = tmp_path / "p.csv"
    assert main(["predict", str(model), str(support), "--out", str(out)]) == 0
    assert "accuracy 100.0 % (95 %: " in capsys.readouterr().out  # of its own support
    assert {row["input"]: row["label"] for row in rows(out)}["ü/1.png"] == "ü"
    odd = images(tmp_path / "odd", ("a", "zebra"), seed=1)
    assert main(["predict", str(model), str(odd), str(support / "c" / "0.png"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["right"] is None  # one input has no label
    assert len(found["predictions"]) == 5
    assert main(["predict", str(model), str(odd)]) == 0
    told = capsys.readouterr()
    assert "no class of the model, not counted: zebra" in told.err
    assert "n = 2" in told.err
    assert told.out.startswith("input,predicted,score a,score c,score ü,label\n")


def test_regression_gives_values_and_their_error(made, tmp_path, capsys):
    x = np.linspace(-2, 2, 9)[:, None]
    support = table(tmp_path, x=x, y=x[:, 0] ** 2)
    model = adapted(made, "regression", tmp_path, support)
    out = tmp_path / "p.csv"
    assert main(["predict", str(model), str(support), "--out", str(out)]) == 0
    found = rows(out)
    error = np.mean([(float(row["predicted"]) - float(row["label"])) ** 2 for row in found])
    assert f"mean squared error {error:.4g}" in capsys.readouterr().out
    assert set(found[0]) == {"input", "predicted", "label"}


def test_one_at_a_time_equals_together(made):
    for name in ("ls", "maml"):
        model = made(name)[1].adapt(X, Y)
        one = np.concatenate([model.outputs(row[None]) for row in QUERY])
        np.testing.assert_allclose(one, model.outputs(QUERY), atol=1e-5)
        assert not model.transductive


def test_a_transductive_model_says_so(made, tmp_path, capsys):
    run, _ = made("transductive")
    support, model = images(tmp_path / "support"), tmp_path / "model"
    assert main(["adapt", str(run), "--support", str(support), "--out", str(model)]) == 0
    assert main(["predict", str(model), str(support)]) == 0
    assert "transductive" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["ls", "r2d2", "maml", "leo", "regression"])
def test_a_saved_model_loads_without_bank_and_run(made, tmp_path, name):
    _, learner = made(name)
    x, y = (X[:, :1], X[:, 1]) if name == "regression" else (X, Y)
    model = learner.adapt(x, y)
    model.save(tmp_path / "model")
    found = metaforge.load_model(tmp_path / "model")
    query = QUERY[:, : x.shape[1]]
    np.testing.assert_array_equal(found.outputs(query), model.outputs(query))
    assert found.classes == model.classes
    assert found.scale == model.scale
    assert metaforge.load(tmp_path / "model").origin == model.origin
    assert sorted(one.name for one in (tmp_path / "model").iterdir()) == [
        "model.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("labels", [[1, 2, 3], [0.5, 1.5, 2.0], [True, False, True]])
def test_labels_keep_their_kind(made, tmp_path, labels):
    y = np.array(labels)[np.arange(9) % 3]
    made("ls")[1].adapt(X, y).save(tmp_path / "model")
    found = metaforge.load_model(tmp_path / "model").predict(QUERY)
    assert found.dtype.kind == y.dtype.kind
    assert set(found.tolist()) <= set(labels)


def test_probabilities_of_scores_are_fitted_on_bank_tasks(made):
    model, logits = (made(name)[1].adapt(X, Y) for name in ("ls", "r2d2"))
    assert logits.scale == 1
    assert model.scale > 1  # scores of least squares lie in about [0, 1]
    assert (model.probabilities(QUERY).argmax(1) == model.outputs(QUERY).argmax(1)).all()


# -- what is wrong -------------------------------------------------------------------


def refused(capsys, run, support, folder, *options, code=3):
    before = sorted(folder.rglob("*"))
    out = ["--out", str(folder / "model")]
    assert main(["adapt", str(run), "--support", str(support), *out, *options]) == code
    assert sorted(folder.rglob("*")) == before, "something half-written"
    told = capsys.readouterr().err
    assert "Traceback" not in told
    return told


def test_every_bad_image_is_listed(made, tmp_path, capsys):
    support = images(tmp_path / "support")
    (support / "a" / "empty.png").write_bytes(b"")
    (support / "c" / "text.png").write_text("no image")
    os.symlink(support / "gone.png", support / "a" / "link.png")
    told = refused(capsys, made("images")[0], support, tmp_path)
    assert all(name in told for name in ("empty.png", "link.png"))


def test_a_sample_in_two_classes_is_told(made, tmp_path, capsys):
    support = images(tmp_path / "support")
    (support / "c" / "copy.png").write_bytes((support / "a" / "0.png").read_bytes())
    told = refused(capsys, made("images")[0], support, tmp_path)
    assert "a/0.png (a) and c/copy.png (c)" in told


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.vstack([X[:8], np.full((1, WIDTH), np.nan)])}, "hold NaN or infinity: row 8"),
        ({"x": np.vstack([X[:7], np.zeros((2, WIDTH))])}, "are all zeros.*row 7, row 8"),
        ({"x": X[:, :4]}, r"expected samples \[n, 6\]"),
        ({"y": Y[:5]}, "expected one for each row"),
        ({"y": np.full(9, "a")}, "one class alone"),
    ],
)
def test_bad_arrays_are_told(made, tmp_path, capsys, arrays, said):
    told = refused(capsys, made("ls")[0], npz(tmp_path, **arrays), tmp_path)
    import re

    assert re.search(said, told)


def test_tables_and_inputs_that_cannot_be_used(made, tmp_path, capsys):
    run, _ = made("ls")
    plain = table(tmp_path)
    assert "has no labels" in refused(capsys, run, plain, tmp_path)
    assert "no column 'kind'" in refused(capsys, run, plain, tmp_path, "--label", "kind")
    texts = table(tmp_path, label=Y, colour=["red"] * 9)
    assert "columns of text: 'colour'" in refused(capsys, run, texts, tmp_path)
    assert "no such file" in refused(capsys, run, tmp_path / "gone.csv", tmp_path)
    assert "takes none" in refused(capsys, run, images(tmp_path / "i"), tmp_path)
    assert "no mixture" in refused(capsys, run, npz(tmp_path), tmp_path, "--source", "a")
    assert "steps is -1" in refused(capsys, run, npz(tmp_path), tmp_path, "--steps=-1", code=2)
    (tmp_path / "empty").mkdir()
    assert "empty" in refused(capsys, made("images")[0], tmp_path / "empty", tmp_path)


def test_features_of_another_backbone_are_refused(made, tmp_path, capsys):
    from dataclasses import replace

    from metaforge.components import Context
    from metaforge.image_files import ImageForm
    from metaforge.preprocess import Preprocess
    from metaforge.samples import read

    own = Preprocess((WIDTH,), ImageForm(1, 4, 4), {"use": "glyph_conv"}, "a" * 32)
    said = {"backbone": {"use": "other"}, "fingerprint": "b" * 32}
    said["images"] = {"channels": 1, "height": 4, "width": 4}
    path = npz(tmp_path, metaforge=np.array(json.dumps(said)))
    with pytest.raises(DataError, match="features of the backbone other, weights bbbb"):
        read(path, own, Context())
    assert not read(path, replace(own, backbone_fingerprint="b" * 32), Context()).remarks
    assert "does not say" in read(npz(tmp_path), own, Context()).remarks[0]


def test_nothing_is_overwritten(made, tmp_path, capsys):
    model = adapted(made, "ls", tmp_path, npz(tmp_path))
    before = digest(model / "model.json")
    assert "nothing is overwritten" in refused(capsys, made("ls")[0], npz(tmp_path), tmp_path)
    adapted(made, "ls", tmp_path, npz(tmp_path), "--steps", "1", "--force")
    assert digest(model / "model.json") != before
    out = tmp_path / "p.csv"
    out.write_text("mine")
    assert main(["predict", str(model), str(npz(tmp_path)), "--out", str(out)]) == 3
    assert out.read_text() == "mine"


def spoiled(path, change):
    def changed(told):
        change(told, path)
        told["files"] = {"model.safetensors": digest(path / "model.safetensors")}

    sealed.change(path / "model.json", changed)


def _other_theta(told, path):
    tensors, _ = load_tensors(path / "model.safetensors")
    save_tensors(path / "model.safetensors", tensors | {"theta/w0": 2 * tensors["theta/w0"]})


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda told, path: told.update(format=9), DamagedFile, "a model of format 9"),
        (_other_theta, DamagedFile, "what it makes of its own support differs by"),
        (lambda t, p: t["inner"].update(hidden=9), DamagedFile, r"w0 is \[6, 6\], expected \[6, 9"),
        (lambda t, p: t["inner"].update(use="gone"), PluginError, "unknown inner_algorithm 'gone'"),
        (lambda t, p: t.pop("classes"), DamagedFile, "classes"),
    ],
)
def test_a_model_of_another_make_is_told(made, tmp_path, change, error, said):
    made("ls")[1].adapt(X, Y).save(tmp_path / "model")
    spoiled(tmp_path / "model", change)
    with pytest.raises(error, match=said):
        metaforge.load_model(tmp_path / "model")


def test_a_model_is_no_learner(made, tmp_path, capsys):
    model = adapted(made, "ls", tmp_path, npz(tmp_path))
    assert main(["adapt", str(model), "--support", "x", "--out", str(tmp_path / "n")]) == 3
    assert "an adapted model, which is not adapted again" in capsys.readouterr().err


def test_the_shape_of_a_support_is_that_of_its_largest_class(made):
    model = made("ls")[1].adapt(X, Y)
    assert shape_of(model.support).shots == 4


def test_wilsons_interval():
    low, high = wilson(8, 10)  # worked by hand: 0.4902, 0.9433
    assert low == pytest.approx(0.4902, abs=1e-4)
    assert high == pytest.approx(0.9433, abs=1e-4)
    assert wilson(10, 10)[1] == pytest.approx(1)


def test_all_that_is_wrong_with_a_folder_is_told_at_once(made, tmp_path, capsys):
    run, _ = made("images")
    support = images(tmp_path / "support")
    (support / "empty").mkdir()
    (support / "a" / "text.png").write_text("no image")
    (support / "c" / "nothing.png").touch()
    words = ["adapt", str(run), "--support", str(support), "--out", str(tmp_path / "m")]
    assert main(words) == 3
    said = capsys.readouterr().err
    for part in ("without an image", "a/text.png", "c/nothing.png: is empty"):
        assert part in said
    assert not (tmp_path / "m").exists()


def test_a_learner_is_no_model_yet(made, tmp_path, capsys):
    run, _ = made("ls")
    assert main(["predict", str(run), str(tmp_path)]) == 3
    assert f"{run}: a learner, no adapted model: first metaforge adapt" in capsys.readouterr().err
    assert main(["predict", "glyphs", str(tmp_path)]) == 3
    assert "glyphs: a learner" in capsys.readouterr().err
    assert main(["predict", str(tmp_path), str(tmp_path)]) == 3
    assert "no adapted model (model.json); metaforge adapt makes one" in capsys.readouterr().err


def test_force_replaces_what_the_command_made_and_nothing_else(made, tmp_path, capsys):
    """Neither a folder of images nor a run, nor a file that is no table."""
    run, _ = made("ls")
    precious = images(tmp_path / "precious")
    before = sorted(path for path in precious.rglob("*"))
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    support = npz(tmp_path)
    adapt = ["adapt", str(run), "--support", str(support), "--force", "--out"]
    for where in (precious, copy, tmp_path, Path("."), Path("..")):
        assert main([*adapt, str(where)]) == 3
        assert main(["bundle", str(run), "--force", "--out", str(where)]) == 3
    (tmp_path / "link").symlink_to(precious)
    assert main([*adapt, str(tmp_path / "link")]) == 3
    assert "is a link" in capsys.readouterr().err
    assert sorted(path for path in precious.rglob("*")) == before
    assert (copy / "resolved.yaml").is_file()
    model = tmp_path / "model"
    for _ in range(2):
        assert main([*adapt, str(model)]) == 0
    predict = ["predict", str(model), str(support), "--force", "--out"]
    assert main([*predict, str(before[-1])]) == 3
    assert "no table of predictions" in capsys.readouterr().err
    for _ in range(2):
        assert main([*predict, str(tmp_path / "p.csv")]) == 0


def test_splits_are_not_mixed(made, tmp_path, capsys):
    run, _ = made("images")
    for split in ("train", "test"):
        images(tmp_path / "data" / split)
    words = ["adapt", str(run), "--out", str(tmp_path / "m"), "--support"]
    assert main([*words, str(tmp_path / "data")]) == 3
    assert "holds splits (test, train), which are not to be mixed" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "data" / "train")]) == 0
    assert main([*words, str(tmp_path / "data" / "train"), "--label", "kind", "--force"]) == 3


ODD = {
    "too large for float32": {"x": np.where(np.arange(9)[:, None] == 4, 1e39, X)},
    "files [3]; expected one for each row": {"files": np.array(list("abc"))},
    "expected numbers or texts": {"y": Y.astype("S1")},
    "expected numbers, ": {"x": X[:0], "y": Y[:0]},
    "samples are in two classes": {
        "x": np.repeat(X[:3], 3, 0),
        "y": np.array([0.0, 0, 1, 1, 1, 0, 2, 2, 2]),
    },
}


@pytest.mark.parametrize("said", ODD)
def test_odd_arrays_are_told(made, tmp_path, capsys, said):
    run, _ = made("ls")
    path = npz(tmp_path, **ODD[said])
    assert main(["adapt", str(run), "--out", str(tmp_path / "m"), "--support", str(path)]) == 3
    assert said in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


def test_labels_are_found_and_compared_as_numbers(made, tmp_path, capsys):
    run, _ = made("ls")
    path = tmp_path / "s.npz"
    np.savez(path, X=X, label=np.array([1.0] * 4 + [2.0] * 3 + [10.0] * 2))
    model = tmp_path / "m"
    assert main(["adapt", str(run), "--support", str(path), "--out", str(model)]) == 0
    np.savez(path, X=X, y=np.array([1] * 4 + [2] * 3 + [10] * 2))
    assert main(["predict", str(model), str(path), "--out", str(tmp_path / "p.csv")]) == 0
    assert "n = 9" in capsys.readouterr().out


def test_what_is_wrong_with_several_inputs_is_told_at_once(made, tmp_path, capsys):
    run, _ = made("ls")
    model = tmp_path / "m"
    assert main(["adapt", str(run), "--support", str(npz(tmp_path)), "--out", str(model)]) == 0
    capsys.readouterr()
    paths = []
    for name, x in {"wide": np.ones((2, WIDTH + 1)), "nan": np.full((2, WIDTH), np.nan)}.items():
        paths.append(str(tmp_path / f"{name}.npz"))
        np.savez(paths[-1], X=x)
    assert main(["predict", str(model), *paths]) == 3
    said = capsys.readouterr().err
    assert f"{paths[0]}: samples have shape [n, {WIDTH + 1}]" in said
    assert f"{paths[1]}: 2 samples hold NaN or infinity" in said
