"""Images as numbers: PNG, JPEG and TIFF through Pillow, EXR through OpenEXR.

Numbers are those of the file, without any colour space: whole ones from 0 to 1, real ones as they
are. So a painted 128 of 255 is 0.502 whatever the picture looks like.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loki_core.errors import FormatError, InputError, did_you_mean

Image = npt.NDArray[np.float32]

PILLOW_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
SUFFIXES = (*PILLOW_SUFFIXES, ".exr")
MAX_PIXELS = 1 << 28
INSTALL = 'pip install {0} (the extra "textures" has it)'
_MODES = {"1": "L", "P": "RGBA", "PA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB"}


def read_image(path: str | Path) -> Image:
    """Return an image, [height, width, channels], its upper row first; 1 to 4 channels.

    Raises:
        FormatError: It is damaged, too large, or of another kind.
        InputError: The package that reads it is not installed.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise FormatError(f'{path}: unknown suffix "{suffix}"{did_you_mean(suffix, SUFFIXES)}')
    if not path.is_file():
        raise FormatError(f"{path} is not there or is no file")
    image = _read_exr(path) if suffix == ".exr" else _read_with_pillow(path)
    if image.size == 0:
        raise FormatError(f"{path} has no pixel")
    return np.ascontiguousarray(image, np.float32)


def _read_with_pillow(path: Path) -> npt.NDArray[Any]:
    try:
        from PIL import Image as Pillow
    except ImportError as error:
        raise InputError(f"{path} needs Pillow: {INSTALL.format('pillow')}") from error
    try:
        with warnings.catch_warnings(), Pillow.open(path) as opened:
            warnings.simplefilter("ignore")  # about sizes, which are compared here
            width, height = opened.size
            if width * height > MAX_PIXELS:
                raise FormatError(f"{path} has {width} x {height} pixels; at most {MAX_PIXELS}")
            mode = _MODES.get(opened.mode)
            values = np.asarray(opened if mode is None else opened.convert(mode))
    except (OSError, ValueError, SyntaxError, Pillow.DecompressionBombError) as error:
        raise FormatError(f"{path} cannot be read as an image: {error}") from error
    if values.ndim == 2:
        values = values[:, :, None]
    if values.dtype == np.uint8:
        return values / np.float32(255.0)
    if values.dtype in (np.uint16, np.int32):  # 16 bits of grey are of either type
        return values / np.float32(65535.0)
    return values


def _read_exr(path: Path) -> npt.NDArray[Any]:
    try:
        import OpenEXR
    except ImportError as error:
        raise InputError(f"{path} needs OpenEXR: {INSTALL.format('OpenEXR')}") from error
    try:
        with OpenEXR.File(str(path), header_only=True) as file:
            (left, top), (right, bottom) = (np.asarray(one) for one in file.header()["dataWindow"])
        width, height = int(right) - int(left) + 1, int(bottom) - int(top) + 1
        if width * height > MAX_PIXELS:
            raise FormatError(f"{path} has {width} x {height} pixels; at most {MAX_PIXELS}")
        with OpenEXR.File(str(path), separate_channels=True) as file:
            channels = {name: np.asarray(one.pixels) for name, one in file.channels().items()}
    except (RuntimeError, OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path} cannot be read as EXR: {error}") from error
    known = [name for name in ("R", "G", "B", "A", "Y") if name in channels] or sorted(channels)[:1]
    if "Y" in known:
        known = [name for name in ("Y", "A") if name in known]
    if not known or any(channels[name].shape != channels[known[0]].shape for name in known):
        raise FormatError(f"{path} has channels of different sizes, or none")
    return np.stack([channels[name].astype(np.float32) for name in known], axis=-1)
