"""A module that runs on two cores and is used as before: its image is cut into an upper and a lower half."""

import torch
from torch import nn
from torch.nn import functional

from trine.capture.export import capture
from trine.capture.model import make_model
from trine.plan.build import build
from trine.run.parallelize import parallelize

torch.manual_seed(0)
module = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
)  # fmt: skip
images, labels = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))

graph = capture(make_model(module, images), training=True, with_loss=False).graph
plan = build(graph, tensor=(2,), cuts=("height",))
parallel = parallelize(module, plan, inputs=images)

optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = functional.cross_entropy(parallel(images), labels)
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}")

parallel.eval()
with torch.no_grad():
    difference = (parallel(images) - module(images)).abs().max().item()
print(f"{plan.describe()}: at most {difference:.1e} from the module on one core")
assert difference < 1e-5
