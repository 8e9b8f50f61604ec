"""Models of segmentation-models-pytorch and diffusers by name: shapes, losses, and errors that name what there is."""

import pytest
from tests.capture.test_specification import Set

from trine.capture.export import capture
from trine.capture.specification import load_model
from trine.capture.wishes import Wishes
from trine.errors import BadInput, UnknownName

SMALL = {
    "block_out_channels": "(16,32)", "norm_num_groups": "4",
    "down_block_types": "('DownEncoderBlock2D','DownEncoderBlock2D')",
    "up_block_types": "('UpDecoderBlock2D','UpDecoderBlock2D')",
}  # fmt: skip


def wishes(settings: dict[str, str], **more: object) -> Wishes:
    return Wishes(set=tuple(Set(key, value) for key, value in settings.items()), **more)


def test_a_decoder_of_images_has_its_loss_per_pixel():
    pytest.importorskip("segmentation_models_pytorch")
    model = load_model("smp:Unet/resnet18", wishes({"classes": "5"}, size=32))
    graph = capture(model, training=True, with_loss=True).graph
    assert graph.tensors[graph.inputs[0]].shape == (2, 3, 32, 32)
    assert model.inputs.targets.shape == (2, 32, 32)


def test_an_autoencoder_has_the_mean_square():
    pytest.importorskip("diffusers")
    model = load_model("diffusers:AutoencoderKL", wishes(SMALL, size=16))
    assert model.inputs.targets.shape == (2, 3, 16, 16)
    graph = capture(model, training=True, with_loss=True).graph
    assert sum(op.base == "group_norm" for op in graph.operators) > 5


@pytest.mark.parametrize(
    ("spec", "said"),
    [("smp:Unit/resnet18", "Unet"), ("smp:Unet/resnet17", "resnet18"), ("diffusers:UNet2D", "UNet2DM")],
)
def test_unknown_names_have_nearest_ones(spec: str, said: str):
    pytest.importorskip("segmentation_models_pytorch")
    pytest.importorskip("diffusers")
    with pytest.raises(UnknownName, match=said):
        load_model(spec)


def test_options_that_cannot_be_honoured_are_errors():
    pytest.importorskip("diffusers")
    with pytest.raises(BadInput, match="--seq"):
        load_model("diffusers:AutoencoderKL", Wishes(seq=7))
