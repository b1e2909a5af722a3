"""Letters to 28x28 images: seeded affine jitter, noise and occlusion.

An image is a function of (seed, letter, face, k) and the distortion alone: every random
number is ``seeding.bits(seed, code point, face, k, ...)``, so images can be drawn in any
order, in any subset, and come out bit for bit the same.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont, features

from metaforge.errors import DataError
from metaforge.seeding import bits, derive, uniform
from metaforge_glyphs.fonts import FACES, font_path
from metaforge_glyphs.options import SIZE, Distortion

#: A letter's longer side: in the image before jitter, and in the bitmap jittered from.
BOX, DRAWN = 20, 40
#: Raise it when the same options give other images.
RENDERER_VERSION = 1

BILINEAR = Image.Resampling.BILINEAR
_EM = 64  # pixels, of the bitmap that is cropped
_BLOCK = 1024  # images drawn at once


def renderer() -> str:
    """What draws: a part of every fingerprint of images."""
    return f"{RENDERER_VERSION}/pillow-{Image.__version__}/freetype-{features.version('freetype2')}"


@lru_cache(maxsize=len(FACES))
def _font(face: int) -> ImageFont.FreeTypeFont:
    # BASIC: a letter's own glyph, neither shaped nor joined.
    layout = ImageFont.Layout.BASIC
    return ImageFont.truetype(str(font_path(FACES[face])), size=_EM, layout_engine=layout)


def glyph(char: str, face: int, side: int = DRAWN) -> Image.Image | None:
    """The letter's ink, cropped and scaled to a longer side of ``side``; None if it has none."""
    canvas = Image.new("L", (4 * _EM, 3 * _EM))
    ImageDraw.Draw(canvas).text((_EM, 2 * _EM), char, fill=255, font=_font(face), anchor="ls")
    ink = canvas.getbbox()
    if ink is None:
        return None
    ratio = side / max(ink[2] - ink[0], ink[3] - ink[1])
    size = [max(1, round((ink[i + 2] - ink[i]) * ratio)) for i in (0, 1)]
    return canvas.resize((size[0], size[1]), Image.Resampling.BOX, box=ink)


def clean(char: str, face: int) -> np.ndarray | None:
    """[28, 28] uint8: the letter as it is, centred; None if the face draws nothing."""
    ink = glyph(char, face, BOX)
    if ink is None:
        return None
    canvas = Image.new("L", (SIZE, SIZE))
    canvas.paste(ink, ((SIZE - ink.width) // 2, (SIZE - ink.height) // 2))
    return np.asarray(canvas)


def _inverse_maps(draws: np.ndarray, distortion: Distortion) -> np.ndarray:
    """[n, 2, 2] linear maps from image to glyph coordinates, inverse of rotate, slant, scale.

    draws [n, 4] in [-1, 1]: rotation, shear, log scale of x and of y.
    """
    angle = np.deg2rad(distortion.rotation) * draws[:, 0]
    shear = distortion.shear * draws[:, 1]
    scale = np.exp(distortion.scale * draws[:, 2:]) * (BOX / DRAWN)
    cos, sin = np.cos(angle), np.sin(angle)
    rows = np.stack([cos + shear * sin, sin - shear * cos, -sin, cos], -1).reshape(-1, 2, 2)
    return rows / scale[:, :, None]


def _shaped(
    codes: np.ndarray, faces: np.ndarray, ks: np.ndarray, key: int, distortion: Distortion
) -> np.ndarray:
    """[n, 28, 28] uint8: rotated, slanted, scaled and shifted letters."""
    draws = 2 * uniform(key, codes[:, None], faces[:, None], ks[:, None], np.arange(6)) - 1
    maps = _inverse_maps(draws[:, :4], distortion)
    centres = SIZE / 2 + distortion.shift * draws[:, 4:]
    strip = Image.new("L", (SIZE, SIZE * len(codes)))
    ink, drawn = None, None
    for row, (code, face, inverse, centre) in enumerate(
        zip(codes.tolist(), faces.tolist(), maps.tolist(), centres.tolist(), strict=True)
    ):
        if drawn != (code, face):
            ink, drawn = glyph(chr(code), face), (code, face)
        if ink is None:
            raise DataError(f"glyphs: U+{code:04X} has no ink in {FACES[face].name}")
        (a, b), (d, e) = inverse
        c = ink.width / 2 - a * centre[0] - b * centre[1]
        f = ink.height / 2 - d * centre[0] - e * centre[1]
        image = ink.transform((SIZE, SIZE), Image.Transform.AFFINE, (a, b, c, d, e, f), BILINEAR)
        strip.paste(image, (0, SIZE * row))
    return np.asarray(strip).reshape(-1, SIZE, SIZE)


def _damaged(
    images: np.ndarray, keys: np.ndarray, noise_key: int, distortion: Distortion
) -> np.ndarray:
    """Hide a square of each image and add noise; images [n, 28, 28] uint8, keys [n] uint64."""
    draws = uniform(noise_key + 1, keys[:, None], np.arange(3)).astype(np.float32)
    grid = np.arange(SIZE, dtype=np.float32)
    side = distortion.occlusion * SIZE * draws[:, :1]
    across, down = (
        (grid >= start) & (grid < start + side)
        for start in (draws[:, i : i + 1] * (SIZE - side) for i in (1, 2))
    )
    images = np.where(down[:, :, None] & across[:, None, :], np.uint8(0), images)
    if not distortion.noise:
        return images
    # A 64-bit word holds four pixels' noise, each uniform in +-sqrt(3) sd.
    words = bits(noise_key, keys[:, None], np.arange(SIZE * SIZE // 4)).view(np.uint16)
    unit = words.reshape(images.shape).astype(np.float32) / 32768 - 1
    reach = 255 * distortion.noise * np.sqrt(np.float32(3))
    return np.clip(images + reach * unit, 0, 255).round().astype(np.uint8)


def render(
    codes: np.ndarray, faces: np.ndarray, ks: np.ndarray, *, seed: int, distortion: Distortion
) -> np.ndarray:
    """[n, 28, 28] uint8 images of the letters (code points [n]) in the faces [n].

    ``ks`` [n] numbers the images of one letter in one face. Fastest where rows of the same
    letter and face follow each other. Raises ``DataError`` where a face has no such letter.
    """
    images = np.empty((len(codes), SIZE, SIZE), np.uint8)
    shape, damage, noise = (derive(seed, use) for use in ("shape", "damage", "noise"))
    for start in range(0, len(codes), _BLOCK):
        rows = slice(start, start + _BLOCK)
        index = codes[rows], faces[rows], ks[rows]
        shaped = _shaped(*index, shape, distortion)
        images[rows] = _damaged(shaped, bits(damage, *index), noise, distortion)
    return images
