"""Image nets by their counts, and how fast a device runs them: three rates from the times of three nets.

    t = F / P + B / W + k launches

F multiplications and additions, B bytes of weights and of the inputs and outputs of convolutions, k operators.  A 3 x 3
convolution of stride 1 is taken as Winograd's F(2x2, 3x3) (Lavin and Gray, 2016): 2.25 times fewer multiplications, and
four numbers to memory for each of its inputs and outputs.  The counts are of batch 1, over convolutions and matrix
products of the nets as torchvision and timm build them; AlexNet, MobileNet-SSD and YOLOv4-tiny by their papers'
layers.  Left out: caches, the number of cores, formats, and operators between the convolutions.
"""

from collections.abc import Mapping

import msgspec
import numpy as np
from scipy.optimize import nnls

from trine.errors import BadInput

M = 1e6
WINOGRAD_SAVING = 2.25
WINOGRAD_NUMBERS = 4
FITTED_NETS = ("resnet50", "mobilenet_v2", "alexnet")
"""The nets that give a device its rates: one whose time is products, one of many small operators, one of weights."""
FITTED_NETS_INT8 = ("mobilenet_int8", "resnet18_int8", "vgg16_int8")


class Net(msgspec.Struct, frozen=True):
    """Millions: multiply-adds of 3 x 3 convolutions of stride 1 and of all else, weights, numbers in and out of all
    convolutions and of those 3 x 3; and how many operators."""

    winograd_macs: float
    other_macs: float
    weights: float
    activations: float
    winograd_activations: float
    operators: int

    def amounts(self, number_bytes: int) -> tuple[float, float, float]:
        """FLOPs, bytes and launches."""
        flops = 2 * M * (self.winograd_macs / WINOGRAD_SAVING + self.other_macs)
        numbers = self.weights + self.activations + WINOGRAD_NUMBERS * self.winograd_activations
        return flops, number_bytes * M * numbers, float(self.operators)


NETS = {
    "squeezenet": Net(206, 182, 1.23, 4.61, 0.97, 26),
    "mobilenet": Net(0, 568, 4.21, 10.19, 0, 28),
    "mobilenet_v2": Net(0, 301, 3.47, 13.45, 0, 53),
    "mobilenet_v3": Net(0, 216, 5.45, 8.92, 0, 64),
    "shufflenet_v2": Net(0, 145, 2.26, 3.99, 0, 57),
    "efficientnet_b0": Net(0, 385, 5.24, 13.58, 0, 82),
    "googlenet": Net(1010, 488, 6.61, 7.89, 1.91, 58),
    "resnet18": Net(1503, 311, 11.68, 4.67, 2.66, 21),
    "alexnet": Net(150, 575, 60.95, 1.07, 0.11, 8),
    "vgg16": Net(15347, 124, 138.34, 22.67, 22.63, 16),
    "resnet50": Net(1503, 2586, 25.50, 21.78, 2.41, 54),
    "mobilenet_ssd": Net(0, 1149, 5.77, 19.37, 0, 47),
    "yolov4-tiny": Net(2990, 464, 6.05, 12.65, 5.58, 21),
    "vision_transformer": Net(0, 55488, 86.29, 85.97, 0, 50),
}

PARAMS = {
    "AlexNet": 61.1 * M,
    "InceptionV3": 23.8 * M,
    "ResNet-50": 25.6 * M,
    "ResNet-152": 60.2 * M,
    "VGG16": 138.4 * M,
}
"""Parameters, for the bytes of a gradient (torchvision's counts)."""


def counts(name: str) -> tuple[Net, int]:
    """A net's counts and the bytes of a number: one where the name ends in "_int8", else four.  KeyError for a net
    that nobody counted."""
    return NETS[name.removesuffix("_int8")], 1 if name.endswith("_int8") else 4


class Rates(msgspec.Struct, frozen=True):
    """What a device needs for a FLOP, a byte and a launch."""

    s_per_flop: float
    s_per_byte: float
    s_per_launch: float

    def time_s(self, name: str) -> float:
        """Seconds for one image through that net."""
        net, number_bytes = counts(name)
        flops, num_bytes, launches = net.amounts(number_bytes)
        return self.s_per_flop * flops + self.s_per_byte * num_bytes + self.s_per_launch * launches


def fit(times_s: Mapping[str, float]) -> Rates:
    """The rates, none negative, that give the times of these nets with the smallest relative errors."""
    if not times_s or min(times_s.values()) <= 0:
        raise BadInput(
            f"Rates were to be fitted on {len(times_s)} times.",
            "It takes one or more, all above 0.",
            "Give the times of three nets.",
        )
    measured = np.array(list(times_s.values()))
    amounts = np.array([net.amounts(number_bytes) for net, number_bytes in map(counts, times_s)])
    size = amounts.max(axis=0)  # the three columns are of very different size
    found, _ = nnls(amounts / size / measured[:, None], np.ones(len(measured)))
    return Rates(*(float(value) for value in found / size))
