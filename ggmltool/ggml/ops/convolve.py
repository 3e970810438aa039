"""What the convolution and pooling ops share: extents of results as C computes them, and patches of images."""

from __future__ import annotations

from typing import Any

from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.tensor import Dims, Tensor

WINDOW = {
    "s#": "the kernel moves on by so many elements in dimension #",
    "p#": "zeros beside the elements of dimension #, on both sides",
    "d#": "elements of the kernel lie so far apart in dimension #",
}
"""What the parameters of a window mean, for all ops that move one."""


def conv_output_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """ggml_calc_conv_output_size, with C's division, which rounds towards zero."""
    if stride == 0:
        raise GgmlAbort(
            "ggml_calc_conv_output_size", "division by zero", explanation="the stride is 0; ggml divides by it"
        )
    n = size + 2 * padding - dilation * (kernel - 1) - 1
    quotient = abs(n) // abs(stride)
    return (quotient if (n < 0) == (stride < 0) else -quotient) + 1


def with_strides(t: Tensor, ne: Dims, nb: Dims) -> Tensor:
    """Another look at `t`'s memory: kernels of ggml that do not honour all strides read it so."""
    other = Tensor(t.type, ne, nb, name=t.name, id=t.id)
    other.buffer, other.data = t.buffer, t.data
    return other


def contiguous_planes(t: Tensor) -> Tensor:
    """`t` with dimensions 0 and 1 taken for contiguous, whatever nb1 says."""
    ts = t.type.type_size
    return with_strides(t, t.ne, (ts, ts * t.ne[0], t.nb[2], t.nb[3]))


def window(xp: Any, n_out: int, kernel: int, stride: int, padding: int, dilation: int, size: int) -> tuple[Any, Any]:
    """For each output place and kernel element the input place, clipped to the input, and whether it lies inside."""
    places = xp.arange(n_out)[:, None] * stride + xp.arange(kernel)[None, :] * dilation - padding
    inside = (places >= 0) & (places < size)
    return xp.clip(places, 0, max(size - 1, 0)), inside


def patches(xp: Any, image: Any, rows: tuple[Any, Any], columns: tuple[Any, Any]) -> Any:
    """image [..., h, w] to [..., oh, ow, kh, kw], zero outside; `rows` and `columns` come from `window`."""
    iy, in_y = rows
    ix, in_x = columns
    image = not_empty(xp, image, 2)
    inside = in_y[:, None, :, None] & in_x[None, :, None, :]
    taken = image[..., iy[:, None, :, None], ix[None, :, None, :]]
    return xp.where(inside, taken, xp.zeros((), dtype=taken.dtype))


def volume_patches(
    xp: Any, volume: Any, planes: tuple[Any, Any], rows: tuple[Any, Any], columns: tuple[Any, Any]
) -> Any:
    """volume [..., d, h, w] to [..., od, oh, ow, kd, kh, kw], zero outside."""
    (iz, in_z), (iy, in_y), (ix, in_x) = planes, rows, columns
    volume = not_empty(xp, volume, 3)
    z, y, c = (slice(None), None, None) * 2, (None, slice(None), None) * 2, (None, None, slice(None)) * 2
    inside = in_z[z] & in_y[y] & in_x[c]
    taken = volume[..., iz[z], iy[y], ix[c]]
    return xp.where(inside, taken, xp.zeros((), dtype=taken.dtype))


def not_empty(xp: Any, image: Any, n_dims: int) -> Any:
    """The image, or if it has no places in its last dimensions one that has, none of which lies inside."""
    if 0 not in image.shape[-n_dims:]:
        return image
    return xp.zeros((*image.shape[:-n_dims], *(max(n, 1) for n in image.shape[-n_dims:])), dtype=image.dtype)
