"""Limits on how sharp and how wide a Gaussian policy can be. Without torch, since configs check them too."""

import math
from typing import Annotated

from minerva_acme.constraints import Constraint

# Every policy clamps its log-std to this range, on tensors and on arrays. An actor's means and a learner's
# differ by float32 rounding, about 3e-7, and in the log-density of an action this is divided by the standard
# deviation. At exp(-7) = 0.0009 densities differ by 0.001 nats (root mean square, 21 dimensions), at exp(-10)
# by 0.02 and at exp(-15) by 4, where ratios of the two are meaningless.
MIN_LOG_STD = -7.0
MAX_LOG_STD = 2.0
MIN_STDDEV = math.exp(MIN_LOG_STD)
MAX_STDDEV = math.exp(MAX_LOG_STD)
STDDEV_RANGE = f"in [{MIN_STDDEV:.3g}, {MAX_STDDEV:.3g}], the range to which policies clamp it"  # in messages
Stddev = Annotated[float, Constraint(STDDEV_RANGE, lambda value: MIN_STDDEV <= value <= MAX_STDDEV)]
