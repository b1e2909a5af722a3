"""``cifar_fs`` and ``fc100``: CIFAR-100's own files, images, pickles, features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import metaforge
from metaforge.components import Context, load_attribute
from metaforge.errors import DataError, RecipeError
from metaforge.recipe import load
from metaforge.registry import get
from metaforge.testing import datasets as laws
from metaforge_fewshot_images.cifar_names import CLASSES, SUPERCLASS_OF, SUPERCLASSES, split_of

from ..plugins.leo_embeddings_files import pickled
from .benchmark_files import (
    COUNTS,
    cifar_folders,
    cifar_part,
    coloured,
    write_cifar,
    write_cifar_archive,
    write_images,
    write_labelled,
)

FC100 = {"train": 60, "val": 20, "test": 20}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """CIFAR-100's size, of images that are black but for a few."""
    return write_cifar(tmp_path_factory.mktemp("cifar"))


@pytest.fixture(scope="module")
def archive(tmp_path_factory, root):
    return write_cifar_archive(tmp_path_factory.mktemp("archive"), root / "cifar-100-python")


@pytest.fixture
def make(tmp_path):
    context = Context(cache_dir=tmp_path.with_name(f"{tmp_path.name}-cache"))

    def made(name, path, context=context, **options):
        return metaforge.create("dataset", name, context=context, path=path, **options)

    return made


def found(make, path, name="cifar_fs", **options) -> str:
    with pytest.raises(DataError) as caught:
        make(name, path, **options)
    return str(caught.value)


def checked(name, path, **options) -> list[str]:
    """What ``validate`` finds."""
    component, said = get("dataset", name), []
    made = component.options_model(path=path, **options)
    return load_attribute(component.check)(made, Context(report=said.append))


# -- facts ---------------------------------------------------------------------------------------


def test_names_are_those_of_an_independent_reading():
    """Of the splits' counts and of some classes that papers name."""
    assert len(CLASSES) == 100
    assert {len(names.split()) for names in SUPERCLASSES.values()} == {5}
    assert len(SUPERCLASSES) == 20
    for name, counts in (("cifar_fs", COUNTS), ("fc100", FC100)):
        split = split_of(name)
        assert {s: list(split.values()).count(s) for s in counts} == counts
    fc100 = split_of("fc100")
    assert {SUPERCLASS_OF[label] for label in CLASSES if fc100[label] == "test"} == {
        "aquatic_mammals", "insects", "medium_mammals", "people",
    }  # fmt: skip
    groups = {split: {SUPERCLASS_OF[c] for c in CLASSES if fc100[c] == split} for split in FC100}
    assert [len(own) for own in groups.values()] == [12, 4, 4]
    assert not groups["train"] & (groups["val"] | groups["test"])


# -- CIFAR-100's own files -----------------------------------------------------------------------


def test_its_files_give_600_images_of_each_class(make, root):
    source = make("cifar_fs", root, queries=599)
    assert source.shape.input_shape == (3, 32, 32)
    assert source.name == "cifar_fs"
    pools = source.sampler.pools
    assert {split: len(own[0].members) for split, own in pools.items()} == COUNTS
    assert {len(rows) for own in pools.values() for rows in own[0].members} == {600}
    with pytest.raises(DataError, match=r"has 600 rows; needs 601"):
        make("cifar_fs", root, queries=600)


def test_pixels_and_labels_are_the_files_own(make, root):
    """A row is red, green, blue, each 32 x 32 from above, as CIFAR-100's page says."""
    source = make("fc100", root)
    images = source.labelled_images("train")
    train = cifar_part("train")
    row = int(images.rows[0])
    expected = train["data"][row].reshape(3, 32, 32)
    assert np.array_equal(images.images[row].numpy(), expected)
    assert images.names["class"][images.labels["class"][0]] == CLASSES[train["fine_labels"][row]]
    superclass = list(SUPERCLASSES)[train["coarse_labels"][row]]
    assert images.names["group"][images.labels["group"][0]] == superclass


def test_the_archive_is_read_as_it_is(make, root, archive):
    assert make("cifar_fs", archive).fingerprint == make("cifar_fs", root).fingerprint
    by_name = make("cifar_fs", archive / "cifar-100-python.tar.gz")
    assert by_name.fingerprint == make("cifar_fs", root / "cifar-100-python").fingerprint
    assert checked("cifar_fs", archive) == []


def test_on_disk_are_the_same_tasks(make, root):
    held, disk = make("fc100", root), make("fc100", root, storage="disk")
    laws.assert_same(held.batch("val", range(20)), disk.batch("val", range(20)), "disk")


@pytest.mark.parametrize("name", ["cifar_fs", "fc100"])
def test_it_keeps_every_law(make, tmp_path, name):
    write_images(tmp_path / "images", cifar_folders(name, by_split=False, each=20))
    context = Context(cache_dir=tmp_path / "cache")

    def source(seed):
        given = replace(context, seed=seed)
        return make(name, tmp_path / "images", given, whole=False, shots=[1, 3])

    laws.check_task_source(source, tasks=100)


def test_tasks_of_fc100_within_a_superclass(make, root):
    source = make("fc100", root, within=1)
    for task in range(20):
        told = source.describe_task("test", task)
        assert {SUPERCLASS_OF[label] for label in told["classes"]} == {told["group"]}
    told = found(make, root, within=1)
    assert "no class group has the 5 classes of a task" in told


PART = {name: value for name, value in cifar_part("train").items() if name != "data"}
DAMAGED = {
    "fewer images": (
        {"data": np.zeros((40_000, 3), np.uint8)},
        "images [40,000, 3], CIFAR-100's own [50,000, 3,072]",
    ),
    "CIFAR-10": ({"fine_labels": None}, "its fine_labels are no list"),
    "a label too high": (
        {"fine_labels": [100, *PART["fine_labels"][1:]]},
        "run from 0 to 100, not 0 to 99",
    ),
    "labels in another order": (
        {"fine_labels": PART["fine_labels"][1:] + PART["fine_labels"][:1]},
        "images have a superclass that is not their class's",
    ),
    "no names": ({"filenames": ["a"]}, "it has no name for each image"),
    "floats": ({"data": np.zeros((5, 5))}, "its data are no table of bytes"),
}


@pytest.mark.parametrize(("entries", "words"), DAMAGED.values(), ids=DAMAGED)
def test_files_that_are_not_cifar_100s(make, root, tmp_path, entries, words):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "test").hardlink_to(root / "cifar-100-python" / "test")
    (folder / "train").write_bytes(pickled({"data": [], **PART, **entries}))
    told = found(make, tmp_path)
    assert f"cifar_fs: {folder}/train: " in told
    assert words in told
    assert told.count("\n") == 0


def test_a_file_that_is_not_there(make, root, tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "train").hardlink_to(root / "cifar-100-python" / "train")
    assert f"{folder} lacks test" in found(make, tmp_path)


def test_files_cut_short_are_all_told(make, root, tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for part in ("train", "test"):
        with (root / "cifar-100-python" / part).open("rb") as file:
            (folder / part).write_bytes(file.read(1_000_000))
    told = found(make, tmp_path)
    assert told.count("it is truncated") == 2
    assert told.splitlines() == [
        f"cifar_fs: {line}" for line in told.replace("cifar_fs: ", "").splitlines()
    ]


@pytest.mark.parametrize("keep", [0.5, 0.999])
def test_an_archive_cut_short_is_seen_at_once(make, archive, tmp_path, keep):
    data = (archive / "cifar-100-python.tar.gz").read_bytes()
    path = tmp_path / "cifar-100-python.tar.gz"
    path.write_bytes(data[: int(len(data) * keep)])
    for told in (found(make, tmp_path), "\n".join(checked("cifar_fs", tmp_path))):
        assert "is cut short" in told
        assert "the one that is offered has 169,001,437" in told


def test_an_archive_damaged_within_is_seen_when_it_is_read(make, archive, tmp_path):
    data = bytearray((archive / "cifar-100-python.tar.gz").read_bytes())
    data[len(data) // 2] ^= 0xFF
    path = tmp_path / "cifar-100-python.tar.gz"
    path.write_bytes(data)
    assert f"cifar_fs: {path}: " in found(make, tmp_path)
    path.write_bytes(b"<html>not found</html>")
    assert "begins with b'<h', not as a gzip archive does" in found(make, tmp_path)


# -- images --------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_split", [True, False])
@pytest.mark.parametrize("place", [".", "cifarfs/processed", "cifarfs/cifar100/data"])
def test_folders_of_images(make, tmp_path, by_split, place):
    write_images(tmp_path / place, cifar_folders("cifar_fs", by_split))
    source = make("cifar_fs", tmp_path, whole=False, queries=2)
    assert source.summary()["train"] == "6 classes"
    told = source.describe_task("test", 0)
    assert {split_of("cifar_fs")[label] for label in told["classes"]} == {"test"}
    image = source.batch("test", [0]).support_x[0, 0].numpy()
    number = CLASSES.index(told["classes"][0])
    drawn = [coloured([number, row], 32).transpose(2, 0, 1) / 255 for row in range(3)]
    assert sum(np.allclose(image, one) for one in drawn) == 1
    told = found(make, tmp_path)
    assert "train has 6 classes, the published one 64" in told
    assert "classes have other numbers of images than 600" in told


def test_folders_that_say_another_split(make, tmp_path):
    write_images(tmp_path, cifar_folders("cifar_fs", by_split=True))
    (tmp_path / "train" / "seal").rename(tmp_path / "test" / "seal")
    write_images(tmp_path, {"val/sofa/0.png": coloured(0, 32)})
    told = found(make, tmp_path, whole=False)
    assert "classes that are of another split in the published data set: seal in test" in told
    assert "classes that are none of the data set's: 'sofa'" in told


def test_images_that_are_damaged_are_all_told(make, tmp_path):
    write_images(tmp_path, cifar_folders("fc100", by_split=False))
    for path in sorted(tmp_path.rglob("1.png"))[:3]:
        path.write_bytes(path.read_bytes()[:100])
    told = found(make, tmp_path, "fc100", whole=False, queries=2)
    assert "3 images cannot be read" in told


# -- a pickle a split ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "form", "counts"),
    [("cifar_fs", "CIFAR_FS_{}.pickle", COUNTS), ("fc100", "FC100_{}.pickle", FC100)],
)
def test_pickles(make, tmp_path, name, form, counts):
    write_labelled(tmp_path, form, counts, 32)
    source = make(name, tmp_path, whole=False, queries=2)
    assert {s: len(own[0].members) for s, own in source.sampler.pools.items()} == counts
    assert "tell no groups of classes" in found(
        make, tmp_path, name, whole=False, queries=2, within=1
    )


# -- features ------------------------------------------------------------------------------------


def write_features(path, names=None, numbered=False):
    names = CLASSES if names is None else names
    X = np.random.default_rng(0).normal(size=(len(names) * 20, 8)).astype("float32")
    labels = np.repeat(np.arange(len(names)), 20)
    if numbered:
        np.savez(path, X=X, y=labels, class_names=np.array(names))
    else:
        np.savez(path, X=X, y=np.array(names)[labels])
    return path


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("name", ["cifar_fs", "fc100"])
def test_features_are_split_by_the_names_of_their_classes(make, tmp_path, name, numbered):
    source = make(name, write_features(tmp_path / "f.npz", numbered=numbered), queries=10)
    for split, pools in source.sampler.pools.items():
        assert {split_of(name)[label] for pool in pools for label in pool.class_names} == {split}
    assert source.shape.input_shape == (8,)
    assert "Krizhevsky" in source.licence


def test_features_of_other_classes_are_refused(make, tmp_path):
    path = write_features(tmp_path / "f.npz", names=[*CLASSES[:-1], "sofa", "plane"])
    told = found(make, path)
    assert "classes that are not CIFAR-100's: 'plane', 'sofa'" in told
    np.savez(path, embeddings=np.zeros(3))
    assert found(make, path).count("f.npz has no array") == 2
    assert "no such file" in found(make, tmp_path / "nowhere.npz")


def test_options_of_images_are_not_read_for_features(tmp_path):
    with pytest.raises(RecipeError, match=r"storage, input: images: not read, as f.npz holds"):
        metaforge.create(
            "dataset", "cifar_fs", path=tmp_path / "f.npz", storage="disk", input="images"
        )


# -- in recipes ----------------------------------------------------------------------------------


def test_a_recipe_finds_what_is_wrong_before_it_runs(root, tmp_path):
    data = {"use": "fc100", "path": str(root), "queries": 3}
    recipe = {"data": data, "inner": {"use": "maml", "model": {"use": "conv4"}}}
    load(recipe)
    told = []
    for changes in (["data.queries=700"], [f"data.path={tmp_path}"], ["inner={use: leo}"]):
        with pytest.raises(RecipeError) as caught:
            load(recipe, changes)
        told.append((str(caught.value), caught.value.exit_code))
    assert "has 600 rows" in told[0][0]
    assert "place there one of" in told[1][0]
    assert [code for _, code in told[:2]] == [3, 3]
    assert "leo" in told[2][0]


def test_facts_for_a_mixture(root):
    component = get("dataset", "fc100")
    facts = load_attribute(component.facts)(component.options_model(path=root), Context())
    assert facts.width == 3 * 32 * 32
    assert facts.shape == (3, 32, 32)
    assert {split: len(names) for split, names in facts.classes.items()} == FC100
