"""Images read as bytes of one form: each line of the policy, and each fault."""

from __future__ import annotations

import os
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from metaforge import image_files
from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.image_files import ImageForm, common_form, image_blocks, read_images
from tests.data.images import noise, write

CONTEXT = Context()


def read(path: Path, channels: int = 3, height: int = 4, width: int = 6) -> np.ndarray:
    form = ImageForm(channels, height, width)
    (image,) = read_images(path.parent, [path.name], form, CONTEXT)
    assert image.dtype == np.uint8
    assert image.shape == form.shape
    return image


def refused(tmp_path: Path, *names: str) -> str:
    with pytest.raises(DataError) as caught:
        read_images(tmp_path, names, ImageForm(1, 4, 4), CONTEXT)
    return str(caught.value)


def test_rgb_is_read_as_it_is(tmp_path):
    pixels = noise(4, 6, 3)
    assert (read(write(tmp_path / "a.png", pixels)) == pixels.transpose(2, 0, 1)).all()


def test_grey_as_rgb_has_equal_channels(tmp_path):
    pixels = noise(4, 6)
    assert (read(write(tmp_path / "a.png", pixels)) == pixels).all()


def test_rgb_as_grey_is_its_luma(tmp_path):
    pixels = noise(4, 6, 3)
    luma = pixels @ np.array([0.299, 0.587, 0.114])
    assert np.abs(read(write(tmp_path / "a.png", pixels), 1)[0] - luma).max() <= 1


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_alpha_is_laid_on_white(tmp_path, mode):
    channels = 1 if mode == "LA" else 3
    pixels, alpha = noise(4, 6, channels), noise(4, 6, 1, seed=1)
    alpha[0], alpha[1] = 0, 255
    Image.fromarray(np.concatenate([pixels, alpha], 2), mode).save(tmp_path / "a.png")
    share = alpha / 255
    expected = (share * pixels + (1 - share) * 255).transpose(2, 0, 1)
    found = read(tmp_path / "a.png")
    assert np.abs(found - expected).max() <= 1
    assert (found[:, 0] == 255).all()
    assert (found[:, 1] == pixels[1].T).all()


def test_a_palette_with_a_transparent_colour_is_laid_on_white(tmp_path):
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8), "P")
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.save(tmp_path / "a.png", transparency=1)
    found = read(tmp_path / "a.png", 3, 1, 3)
    assert found[:, 0].T.tolist() == [[10, 20, 30], [255, 255, 255], [70, 80, 90]]


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_transparent_colour_without_a_palette_is_laid_on_white(tmp_path, mode):
    image = Image.new(mode, (2, 1), "black")
    image.putpixel((1, 0), 7 if mode == "L" else (7, 7, 7))
    image.save(tmp_path / "a.png", transparency=0 if mode == "L" else (0, 0, 0))
    assert read(tmp_path / "a.png", 1, 1, 2).tolist() == [[[255, 7]]]


def test_a_palette_as_grey_is_the_luma_of_its_colours(tmp_path):
    image = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.save(tmp_path / "a.gif")
    assert read(tmp_path / "a.gif", 1, 1, 2).tolist() == [[[76, 29]]]


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_16_bits_are_scaled_to_8(tmp_path, ending):
    values = np.array([[0, 128, 129, 257, 65535, 32768]], np.uint16)
    Image.fromarray(values).save(tmp_path / f"a.{ending}")
    assert read(tmp_path / f"a.{ending}", 1, 1, 6).tolist() == [[[0, 0, 1, 1, 255, 128]]]


def test_a_cmyk_jpeg_is_read_in_its_colours(tmp_path):
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=95)
    red, green, blue = read(tmp_path / "a.jpg", 3, 8, 8).reshape(3, -1).mean(1)
    assert red > 245
    assert max(green, blue) < 10


def test_one_bit_is_black_and_white(tmp_path):
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "a.png")
    assert read(tmp_path / "a.png", 1, 1, 2).tolist() == [[[255, 0]]]


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_the_rotation_of_exif_is_applied(tmp_path, ending):
    """6: the camera was turned to the right, so what is stored as left stands above."""
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    path = write(tmp_path / f"a.{ending}", pixels, exif=exif)
    assert common_form(tmp_path, [path.name], CONTEXT) == ImageForm(3, 16, 8)
    found = read(path, 1, 16, 8)[0]
    assert found[:7].min() > 240
    assert found[9:].max() < 15


def test_the_first_frame_of_an_animation_is_taken(tmp_path):
    frames = [Image.new("L", (3, 3), value) for value in (10, 200)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert (read(tmp_path / "a.gif", 1, 3, 3) == 10).all()


def test_shrinking_averages_over_all_pixels(tmp_path):
    """Without antialiasing, lines one pixel wide would come out black or white."""
    pixels = np.zeros((32, 32), np.uint8)
    pixels[:, ::2] = 255
    found = read(write(tmp_path / "a.png", pixels), 1, 4, 4)
    assert np.abs(found.astype(int) - 127).max() < 12


def test_files_keep_their_order_whatever_the_threads(tmp_path):
    names = [f"{number}.png" for number in range(150)]
    for number, name in enumerate(names):
        write(tmp_path / name, np.full((2, 2), number, np.uint8))
    found = read_images(tmp_path, names[::-1], ImageForm(1, 2, 2), CONTEXT)
    assert found[:, 0, 0, 0].tolist() == list(range(150))[::-1]


def test_progress_is_told_to_the_last_file(tmp_path):
    names = [write(tmp_path / f"{number}.png", noise(2, 2)).name for number in range(70)]
    done = []

    class Told(Context):
        pass

    from contextlib import contextmanager

    @contextmanager
    def progress(name, total, done_before=0):
        done.append((name, total))
        yield lambda n=1, note="": done.append(n)

    list(image_blocks(tmp_path, names, ImageForm(1, 2, 2), Context(progress=progress)))
    assert done[0] == ("reading images", 70)
    assert sum(done[1:]) == 70


def test_the_common_form_is_the_most_common_size_in_colour_if_any_has_some(tmp_path):
    for number, size in enumerate([(4, 6), (4, 6), (9, 9)]):
        write(tmp_path / f"{number}.png", noise(*size))
    grey = ["0.png", "1.png", "2.png"]
    assert common_form(tmp_path, grey, CONTEXT) == ImageForm(1, 4, 6)
    write(tmp_path / "3.png", noise(9, 9, 3))
    assert common_form(tmp_path, [*grey, "3.png"], CONTEXT) == ImageForm(3, 9, 9)


def test_without_a_form_images_are_of_the_common_one(tmp_path):
    for number, size in enumerate([(4, 6), (4, 6), (9, 9)]):
        write(tmp_path / f"{number}.png", noise(*size))
    found = read_images(tmp_path, ["0.png", "1.png", "2.png"], None, CONTEXT)
    assert found.shape == (3, 1, 4, 6)


@pytest.mark.parametrize("name", ["größe.png", "猫.png", "two words.png", "line\nbreak.png"])
def test_odd_names_are_read(tmp_path, name):
    pixels = noise(4, 6)
    assert (read(write(tmp_path / name, pixels), 1) == pixels).all()


def test_every_fault_is_told_at_once(tmp_path):
    whole = write(tmp_path / "whole.png", noise(40, 40)).read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "cut.jpg").write_bytes(
        write(tmp_path / "whole.jpg", noise(40, 40)).read_bytes()[:300]
    )
    Image.fromarray(np.ones((2, 2), np.float32)).save(tmp_path / "real.tif")
    Image.fromarray(np.full((2, 2), 70000, np.int32)).save(tmp_path / "wide.tif")
    Image.new("LAB", (2, 2)).save(tmp_path / "lab.tif")
    faults = {
        "cut.png": "is damaged",
        "text.png": "no image of a known format",
        "cut.jpg": "is damaged",
        "real.tif": "floating-point pixels",
        "wide.tif": "beyond 16 bits",
        "lab.tif": "pixels of the kind LAB",
        "line\nbreak.png": "No such file",
    }
    message = refused(tmp_path, "whole.png", *faults)
    first, *lines = message.split("\n")
    assert f"{tmp_path}: 7 images cannot be read" in first
    for (name, why), line in zip(faults.items(), lines, strict=True):
        assert ascii(name).strip("'") in line
        assert why in line


def test_the_images_before_a_fault_are_no_answer(tmp_path):
    write(tmp_path / "a.png", noise(4, 4))
    (tmp_path / "b.png").write_bytes(b"x")
    with pytest.raises(DataError, match="1 images cannot be read"):
        list(image_blocks(tmp_path, ["a.png", "b.png"], ImageForm(1, 4, 4), CONTEXT))


def test_many_faults_are_counted(tmp_path):
    message = refused(tmp_path, *(f"{number}.png" for number in range(230)))
    assert message.count("\n") == 201
    assert message.endswith("and 30 more")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_a_file_that_may_not_be_read_is_told(tmp_path):
    write(tmp_path / "a.png", noise(4, 4)).chmod(0)
    assert "cannot be opened (Permission denied)" in refused(tmp_path, "a.png")


def claiming(path: Path, width: int, height: int) -> Path:
    """A png of a few bytes that claims any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + data)
    return path


@pytest.mark.parametrize(
    ("width", "height"), [(10001, 10000), (14000, 14000), (2**31 - 1, 2**31 - 1)]
)
def test_a_decompression_bomb_is_refused(tmp_path, width, height):
    claiming(tmp_path / "a.png", width, height)
    assert "100,000,000" in refused(tmp_path, "a.png")
    with pytest.raises(DataError, match="100,000,000"):
        common_form(tmp_path, ["a.png"], CONTEXT)


def test_no_file_starts_another_program(tmp_path):
    """Pillow has Ghostscript draw PostScript, whatever a file's name."""
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    assert "no image of a known format" in refused(tmp_path, "a.png")


def test_warnings_of_the_user_stay_theirs(tmp_path):
    import warnings

    write(tmp_path / "a.png", noise(4, 4))
    blocks = image_blocks(tmp_path, ["a.png"], ImageForm(1, 4, 4), CONTEXT)
    next(blocks)
    with pytest.raises(UserWarning, match="mine"):
        warnings.warn("mine", UserWarning, stacklevel=1)


@pytest.mark.parametrize("form", [(2, 4, 4), (3, 0, 4), (1, 10**5, 10**5)])
def test_a_form_that_is_none_is_refused(form):
    with pytest.raises(DataError, match=r"expected 1 channel \(grey\) or 3"):
        ImageForm(*form)


@pytest.mark.parametrize(("large", "at_once"), [(10, 1), (10**7, 2)])
def test_large_images_are_read_one_at_a_time(tmp_path, monkeypatch, large, at_once):
    monkeypatch.setattr(image_files, "_LARGE", large)
    monkeypatch.setattr(image_files, "_EACH", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    formed, busy, most = image_files.formed, [0], [0]

    def slow(image, form):
        busy[0] += 1
        most[0] = max(most[0], busy[0])
        time.sleep(0.05)
        busy[0] -= 1
        return formed(image, form)

    monkeypatch.setattr(image_files, "formed", slow)
    names = [write(tmp_path / f"{n}.png", noise(4, 6, 3)).name for n in range(4)]
    assert len(read_images(tmp_path, names, ImageForm(3, 4, 6), CONTEXT)) == 4
    assert most == [at_once]
