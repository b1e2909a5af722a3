"""Exported models compute what the model does, and what cannot be exported is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from metaforge import frozen, optional
from metaforge.cli import main
from metaforge.errors import DataError, NumericError, PluginError
from metaforge.frozen import export
from tests.learner.runs import WIDTH

X, Y = np.random.default_rng(0).normal(size=(6, WIDTH)), list("abcabc")
QUERY = torch.randn(7, WIDTH)


def model_of(made, name):
    if name == "regression":
        return made(name)[1].adapt(X[:, :1], X[:, 1])
    return made(name)[1].adapt(X, Y)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["ls", "r2d2", "maml", "leo", "regression"])
def test_torchscript_computes_what_the_model_does(made, tmp_path, name):
    model, path = model_of(made, name), tmp_path / "model.pt"
    export(model, path, "torchscript")
    query = QUERY[:, : model.support.support_x.shape[2]]
    torch.testing.assert_close(torch.jit.load(path)(query), model.module(query))


@pytest.mark.parametrize("name", ["ls", "maml"])
def test_onnx_computes_what_the_model_does(made, tmp_path, name):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model, path = model_of(made, name), tmp_path / "model.onnx"
    export(model, path, "onnx")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input": QUERY.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), model.module(QUERY), rtol=1e-4, atol=1e-5)


def test_the_command(made, tmp_path, capsys):
    model_of(made, "ls").save(tmp_path / "model")
    words = ["export", str(tmp_path / "model"), "--to", "torchscript"]
    out = str(tmp_path / "f.pt")
    assert main([*words, "--out", out]) == 0
    told = capsys.readouterr().out
    assert "scores of a, b, c" in told
    assert '"normalize": "l2"' in told
    assert main([*words, "--out", out]) == 3
    assert main([*words, "--out", out, "--force"]) == 0


def test_what_is_missing_is_named(made, tmp_path, monkeypatch):
    missing = optional.OptionalPackage("no_such_onnx", "", "pip install 'metaforge[onnx]'")
    monkeypatch.setattr(frozen, "ONNX", missing)
    with pytest.raises(PluginError, match=r"pip install 'metaforge\[onnx\]'"):
        export(model_of(made, "ls"), tmp_path / "f", "onnx")


class Moody(nn.Module):
    """Computes something else once it is traced."""

    def forward(self, x):
        scale = 2.0 if torch.jit.is_tracing() else 1.0
        return scale * x


def test_what_computes_something_else_is_not_kept(made, tmp_path):
    from dataclasses import replace

    model = replace(model_of(made, "ls"), module=Moody())
    with pytest.raises(NumericError, match="computes something else"):
        export(model, tmp_path / "f", "torchscript")
    assert not list(tmp_path.iterdir())
    with pytest.raises(DataError, match="nothing is overwritten"):
        export(model, tmp_path, "torchscript")


def test_a_transductive_model_is_refused(made, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 16, 16)).astype("uint8")
    model = made("transductive")[1].adapt(images, Y)
    with pytest.raises(PluginError, match="transductive"):
        export(model, tmp_path / "f", "torchscript")
