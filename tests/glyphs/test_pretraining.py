"""``metaforge pretrain``: its recipe, and the training on data that can be learned."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from metaforge import pretrain_loop, pretraining
from metaforge.cli import main
from metaforge.components import Context
from metaforge.errors import DataError, NumericError, PluginError, RecipeError
from metaforge.pretrain_recipe import Pretraining, load
from metaforge.pretraining import LabelledImages, nearest_class_mean, pretrain
from metaforge.recipe.find import shipped_dir
from metaforge.records import load_tensors, save_tensors
from metaforge.seeding import generator

CLASSES = 4
SHIPPED = shipped_dir() / "pretrain_glyphs.yaml"


class Blobs:
    """Classes around their means; ``half`` is told of every other image alone."""

    fingerprint = "blobs"

    def labelled_images(self, split: str) -> LabelledImages:
        source = generator(0, split)
        y = torch.arange(400) % CLASSES
        means = 2 * torch.randn(CLASSES, 6, generator=generator(0, "means"))
        x = means[y] + 0.5 * torch.randn(400, 6, generator=source)
        half = torch.where(torch.arange(400) % 2 == 0, y % 2 + 5, -1)
        return LabelledImages((x * 8).round().to(torch.int8), {"class": y, "half": half}, 1 / 8)


class Affine:
    """A backbone of one layer."""

    width, images = 5, None

    def __init__(self):
        self.network = nn.utils.skip_init(nn.Linear, 6, self.width)
        with torch.no_grad():
            for parameter in self.network.parameters():
                parameter.uniform_(-0.1, 0.1, generator=generator(0, "affine"))

    @property
    def fingerprint(self) -> str:
        return str(sum(p.double().sum().item() for p in self.network.parameters()))

    def prepare(self, images):
        return images

    @torch.no_grad()
    def features(self, images):
        return self.network.eval()(images)

    def save(self, path, metadata: Any = None):
        save_tensors(path, self.network.state_dict(), metadata)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """``run(**settings)``: the card of a training of ``backbone`` on ``source``."""

    def go(source=None, backbone=None, lines=None, **settings):
        parts = {"dataset": source or Blobs(), "backbone": backbone or Affine()}
        monkeypatch.setattr(pretraining, "create_choice", lambda kind, *rest: parts[kind])
        given = {
            "data": {"use": "blobs"},
            "backbone": {"use": "affine"},
            "heads": {"class": 1.0, "half": 0.5},
            "epochs": 6,
            "batch": 32,
            "lr": 0.1,
            "output": str(tmp_path / "sub" / "weights.safetensors"),
        }
        recipe = Pretraining.model_validate(given | settings)
        report = (lambda line: None) if lines is None else lines.append
        return pretrain(recipe, Context(report=report))

    return go


def test_what_can_be_learned_is_learned_and_told(run, tmp_path):
    lines: list[str] = []
    card = run(lines=lines)
    assert card["held_out"]["class"] > 0.9
    assert card["held_out"]["half"] > 0.9
    assert card["nearest_class_mean"]["class"] > 0.9
    assert len(lines) == 6
    assert lines[-1].startswith("epoch 6/6: loss")
    path = tmp_path / "sub" / "weights.safetensors"
    tensors, metadata = load_tensors(path)
    assert set(tensors) == {"weight", "bias"}
    assert metadata == {"name": "pretrain", "data": "blobs"}
    assert json.loads(path.with_suffix(".json").read_text()) == card


def test_the_same_seed_gives_the_same_weights_and_touches_no_global_state(run):
    state = torch.random.get_rng_state()
    one, again, other = run(), run(), run(seed=1)
    assert one["weights"] == again["weights"] != other["weights"]
    assert torch.equal(torch.random.get_rng_state(), state)


def test_held_out_images_are_not_trained_on(run, monkeypatch):
    seen: list[torch.Tensor] = []
    inputs = LabelledImages.inputs

    def watched(self, rows):
        if torch.is_grad_enabled():
            seen.append(rows)
        return inputs(self, rows)

    monkeypatch.setattr(LabelledImages, "inputs", watched)
    run(held_out=0.25, epochs=8)
    assert 280 < len(torch.cat(seen).unique()) <= 300


def test_a_head_without_labels_in_the_batch_adds_nothing():
    recipe = Pretraining.model_validate(
        {"data": {"use": "a"}, "backbone": {"use": "b"}, "heads": {"class": 1.0, "half": 1.0}}
        | {"output": "x"}
    )
    images = Blobs().labelled_images("train")
    labels = {name: pretraining._numbered(y) for name, y in images.labels.items()}
    images = LabelledImages(images.images, labels, images.scale)
    heads, backbone = pretrain_loop.fresh_heads(5, images), Affine()
    odd = torch.arange(1, 20, 2)  # "half" is not told of these
    loss = pretrain_loop.loss_of(recipe, backbone, heads, images, odd)
    only = recipe.model_copy(update={"heads": {"class": 1.0}})
    torch.testing.assert_close(loss, pretrain_loop.loss_of(only, backbone, heads, images, odd))
    assert torch.isfinite(loss)


def test_nearest_class_mean_is_chance_on_features_that_tell_nothing():
    class Noise(Affine):
        def features(self, images):
            return torch.randn(len(images), 5, generator=generator(0, "noise", len(images)))

    recipe = load(SHIPPED).recipe.model_copy(update={"heads": {"class": 1.0}})
    images = Blobs().labelled_images("val")
    assert nearest_class_mean(Noise(), images, recipe)["class"] < 0.4
    one_class = LabelledImages(images.images, {"class": torch.zeros(400).long()}, 1.0)
    assert nearest_class_mean(Affine(), one_class, recipe) == {}


def test_what_cannot_be_trained_is_named(run):
    with pytest.raises(DataError, match=r"no label 'colour'; they have class, half"):
        run(heads={"colour": 1.0})
    with pytest.raises(PluginError, match="affine offers no network to train"):
        run(backbone=object())
    with pytest.raises(PluginError, match="blobs offers no labelled_images"):
        run(source=object())


def test_a_loss_that_is_not_finite_stops(run):
    backbone = Affine()
    with torch.no_grad():
        backbone.network.bias[0] = float("nan")
    with pytest.raises(NumericError, match=r"the loss is nan in epoch 1; lower lr"):
        run(backbone=backbone)


# -- recipe --------------------------------------------------------------------------


def faults(*overrides: str) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        load(SHIPPED, overrides)
    return [str(problem) for problem in caught.value.problems]


def test_the_shipped_recipe_is_valid():
    loaded = load("pretrain_glyphs")
    assert loaded.recipe.heads == {"letter": 1.0, "face": 1.0, "print": 0.3}
    assert loaded.base_dir == SHIPPED.parent
    assert load(SHIPPED, ["epochs=2", "lr=1e-4"]).recipe.lr == 1e-4


def test_all_problems_are_named_at_once_with_their_lines(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(
        "epoch: 3\nheads: {letter: -1}\n"
        "data:\n  use: glyphs\n  distortion:\n    letters: {noice: 0.1}\n"
        "backbone: {use: glyph_convv}\noutput: a.safetensors\n"
    )
    with pytest.raises(RecipeError) as caught:
        load(path)
    text = str(caught.value)
    for part in (
        f"{path}:1: epoch: unknown key; did you mean 'epochs'?",
        f"{path}:2: heads.letter",
        f"{path}:6: data.distortion.letters.noice: unknown key",
        f"{path}:7: backbone.use: unknown backbone 'glyph_convv'; did you mean 'glyph_conv'?",
    ):
        assert part in text, text


def test_overrides_are_checked_too():
    (line,) = faults("epochs=0")
    assert "override 'epochs=0': epochs" in line
    assert any("data: ways is 9" in line for line in faults("data.ways=9"))
    assert any("heads" in line for line in faults("heads={}"))


def test_an_output_that_cannot_be_written_is_found_first(tmp_path):
    (tmp_path / "file").write_text("")
    (line,) = faults(f"output={tmp_path / 'file' / 'weights.safetensors'}")
    assert f"{tmp_path / 'file'} is a file, a folder is needed" in line
    (line,) = faults(f"output={tmp_path}")
    assert "is a folder, a file is needed" in line


def test_nested_components_and_the_machine_are_checked_too(monkeypatch):
    (line,) = faults("data.backbone.wdith=3")
    assert "data.backbone.wdith: unknown key; did you mean 'width'?" in line
    (line,) = faults("device=gpu")
    assert "device: 'gpu' is no device" in line
    monkeypatch.setattr("metaforge.recipe.machine.metadata.version", lambda name: "2.9.1+cpu")
    (line,) = faults("device=cuda")
    assert "is built without CUDA" in line


# -- the verbs and the two kinds of recipes ------------------------------------------


def test_validate_knows_a_recipe_that_trains_a_backbone(capsys):
    assert main(["validate", str(SHIPPED), "epochs=3"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"ok: {SHIPPED}\n")
    assert "heads     letter (weight 1), face (weight 1), print (weight 0.3)" in said
    assert "3 epochs" in said
    assert f"metaforge pretrain {SHIPPED}" in said
    assert main(["validate", str(SHIPPED), "epochs=0", "heads={}"]) == 2
    assert capsys.readouterr().err.endswith("2 problems\n")


@pytest.mark.parametrize("overrides", [[], ["epochs=0"], ["heads.letter=2"]], ids=str)
def test_each_verb_names_the_other_for_a_recipe_of_the_other_kind(capsys, overrides):
    assert main(["run", str(SHIPPED), *overrides]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"none of a run: metaforge pretrain {SHIPPED}")
    run = SHIPPED.with_name("sp_maml.yaml")
    assert main(["pretrain", str(run), *overrides]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"none that trains a backbone: metaforge run {run}")


def test_a_misplaced_key_does_not_make_a_recipe_one_of_the_other_kind(capsys):
    assert main(["run", "sp_maml", "backbone=glyph_conv"]) == 2
    assert "backbone: unknown key" in capsys.readouterr().err
    assert main(["pretrain", str(SHIPPED), "bank.size=3"]) == 2
    assert "bank: unknown key" in capsys.readouterr().err


# -- command -------------------------------------------------------------------------


def test_the_command_trains_glyphs(tmp_path, monkeypatch, capsys, cache):
    monkeypatch.setenv("METAFORGE_CACHE", str(cache))
    small = ["data.per_letter=4", "data.per_face=1", "data.shots=1", "data.queries=1"]
    output = tmp_path / "own.safetensors"
    code = main(["pretrain", "--quiet", str(SHIPPED), *small, "epochs=1", f"output={output}"])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "held out: letter" in said.out
    assert f"wrote {output}" in said.out
    card = json.loads(output.with_suffix(".json").read_text())
    assert card["held_out"]["face"] > 0.5


def test_a_bad_recipe_ends_with_exit_code_2(capsys):
    assert main(["pretrain", str(SHIPPED), "epochs=none"]) == 2
    assert "epochs" in capsys.readouterr().err


def test_recipes_are_read_without_torch():
    code = (
        "import sys\nfrom metaforge.pretrain_recipe import load\n"
        f"load({str(SHIPPED)!r})\nsys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_relative_paths_of_overrides_start_from_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.safetensors").write_bytes(b"")
    recipe = load(SHIPPED, ["backbone.weights=mine.safetensors"]).recipe
    assert recipe.backbone.options["weights"] == str(tmp_path / "mine.safetensors")
    assert load(SHIPPED).recipe.backbone.options["weights"] == "none"
