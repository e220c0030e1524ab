"""Networks that compute something else in training than in acting, such as those with dropout."""

import contextlib
from collections.abc import Iterator, Sequence

from torch import nn

_OF_TRAINING = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.RReLU),
    *(nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer),
)
"""Layers of torch that read `training`. Recurrent ones are not among them: cuDNN differentiates them in
training mode alone."""


def parts_for_training(*modules: nn.Module) -> list[nn.Module]:
    """Returns the parts of modules that may compute something else in training, such as dropout.

    Of torch's layers and this library's it is known which do. A class of anybody else's may, unless it says
    `same_in_training = True`. Encoder and policy are then not computed again for the KLs.
    """
    return [part for part in nn.ModuleList(modules).modules() if _may_read_training(part)]


def _may_read_training(part: nn.Module) -> bool:
    if isinstance(part, _OF_TRAINING):
        return True
    is_known = type(part).__module__.partition(".")[0] in ("torch", "minerva_acme")
    return not (is_known or getattr(part, "same_in_training", False))


@contextlib.contextmanager
def as_in_acting(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Sets parts to evaluation mode within the block, without those inside of them."""
    modes = [part.training for part in parts]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode
