"""Images are functions of (seed, letter, face, k) and the distortion alone."""

from __future__ import annotations

import numpy as np
import pytest

from metaforge.errors import DataError
from metaforge_glyphs.options import SIZE, BadScan, Distortion
from metaforge_glyphs.render import clean, render

STILL = {"rotation": 0, "shear": 0, "scale": 0, "shift": 0, "noise": 0, "occlusion": 0}
LETTERS = "AgЖᐁشΩႠש"


def index(n: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Letters, faces and numbers of n images; more than one block of the renderer's if wanted."""
    codes = np.array([ord(char) for char in LETTERS])
    i = np.arange(n)
    return codes[i % len(codes)], i % 2, i // (2 * len(codes))


def one(char: str = "A", face: int = 0, k: int = 0, seed: int = 0, **distortion) -> np.ndarray:
    return render(
        np.array([ord(char)]),
        np.array([face]),
        np.array([k]),
        seed=seed,
        distortion=Distortion(**STILL | distortion),
    )[0]


@pytest.mark.parametrize("distortion", [Distortion(), BadScan()], ids=["fair", "bad"])
def test_any_subset_in_any_order_is_bitwise_the_same(distortion):
    codes, faces, ks = index(1500)
    whole = render(codes, faces, ks, seed=3, distortion=distortion)
    again = render(codes, faces, ks, seed=3, distortion=distortion)
    assert np.array_equal(whole, again)
    some = np.random.default_rng(0).permutation(len(codes))[:237]
    part = render(codes[some], faces[some], ks[some], seed=3, distortion=distortion)
    assert np.array_equal(part, whole[some])
    for row in (0, 1023, 1024, 1499):
        alone = (values[row : row + 1] for values in (codes, faces, ks))
        assert np.array_equal(render(*alone, seed=3, distortion=distortion)[0], whole[row])


def test_seed_letter_face_and_number_each_give_another_image():
    jitter = {"rotation": 10, "noise": 0.1, "occlusion": 0.3}
    reference = one(**jitter)
    for other in ({"char": "B"}, {"face": 1}, {"k": 1}, {"seed": 1}):
        assert not np.array_equal(one(**jitter, **other), reference), other


def test_without_distortion_the_letter_is_the_clean_one():
    for char, face in (("A", 0), ("Ж", 8), ("Ω", 12)):
        still, plain = one(char, face).astype(float), clean(char, face).astype(float)
        assert np.abs(still - plain).mean() < 12  # they differ by half a pixel's blur
        assert np.corrcoef(still.ravel(), plain.ravel())[0, 1] > 0.9


@pytest.mark.parametrize("sd", [0.05, 0.25])
def test_noise_has_the_standard_deviation_asked_for(sd):
    # Over black, half of the uniform noise is clipped: the mean is sqrt(3) sd / 4.
    corner = np.stack([one(k=k, noise=sd)[:3] for k in range(200)]) / 255
    assert corner.mean() == pytest.approx(np.sqrt(3) * sd / 4, rel=0.05)
    assert corner.max() <= np.sqrt(3) * sd + 1 / 255


def test_occlusion_hides_a_square_up_to_its_size():
    hidden = []
    for k in range(300):
        lost = one("ᐁ", k=k) != one("ᐁ", k=k, occlusion=0.5)
        ys, xs = np.nonzero(lost)
        hidden.append(max(np.ptp(ys), np.ptp(xs)) + 1 if len(ys) else 0)
        assert not one("ᐁ", k=k, occlusion=0.5)[lost].any()
    assert 10 <= max(hidden) <= 0.5 * SIZE


@pytest.mark.parametrize("option", ["rotation", "shear", "scale", "shift"])
def test_each_jitter_moves_ink_and_more_moves_more(option):
    most = {"rotation": 40, "shear": 0.6, "scale": 0.5, "shift": 6}[option]

    def moved(amount: float) -> float:
        pairs = ((one("F", k=k), one("F", k=k, **{option: amount})) for k in range(20))
        return float(np.mean([np.abs(a.astype(float) - b).mean() for a, b in pairs]))

    assert 0 < moved(most / 8) < moved(most)


def test_a_letter_without_ink_is_an_error():
    with pytest.raises(DataError, match=r"U\+0020 has no ink in DejaVu Sans, regular"):
        one(" ")
