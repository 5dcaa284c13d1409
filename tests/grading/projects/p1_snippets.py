"""Building blocks of P1's examples of solutions: each function returns new source by cell id."""

from __future__ import annotations


def layers(body: str) -> dict[str, str]:
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return {
        "P1-1-solution": f"class LeNetLayers(nn.Module):\n    def __init__(self):\n        super().__init__()\n{lines}"
    }


def forward(body: str) -> dict[str, str]:
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return {"P1-2-solution": f"class LeNet(LeNetLayers):\n    def forward(self, x):\n{lines}"}


def train(
    step: str,
    *,
    returned: str = "total / len(images)",
    epochs: str = "max(2, 9_000 // len(images))",
    first: str = "",
    total: str = "0.0",
    batches: str = "torch.randperm(len(images)).split(32)",
) -> dict[str, str]:
    """Sees a third of the images that the source notebook's solution sees: a learning rate that rises and falls."""
    return {
        "P1-3-solution": f"""
def train(model, images, labels):
    {first}
    epochs, batches = {epochs}, -(-len(images) // 32)
    optimizer, losses = torch.optim.Adam(model.parameters()), []
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.008, total_steps=epochs * batches)
    for _ in range(epochs):
        total = {total}
        for batch in {batches}:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            {step}
            schedule.step()
            total += loss.item() * len(batch)
        losses.append({returned})
    return losses
"""
    }


def export(options: str, model: str = "model.eval()") -> dict[str, str]:
    return {
        "P1-4-solution": f"""
def to_onnx(model, path):
    example = torch.zeros(2, 1, 32, 32)
    torch.onnx.export({model}, (example,), path, {options})
"""
    }


def scanner(inverted: str, *, enlarged: str = "nn.functional.interpolate(x, (32, 32))") -> dict[str, str]:
    """Reads images that are enlarged and inverted as told."""
    return {
        "P1-4-solution-2": f"""
class Exportable(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network
    def forward(self, x):
        x = {enlarged}
        x = {inverted}
        return sum(self.network(x * contrast) for contrast in (0.8, 1, 1.2)) / 3
"""
    }


def forked(result: str) -> dict[str, str]:
    """Names of values of a graph `g`; `inputs` are those of all its nodes, one list for each."""
    return {
        "P1-7-solution-2": f"""
def forks(path):
    g = onnx.load(path).graph
    inputs = [list(node.input) for node in g.node]
    values = [g.input[0].name, *(name for node in g.node for name in node.output)]
    return {result}
"""
    }


def agreement(max_abs: str, max_rel: str, same: str, images: str = "images") -> dict[str, str]:
    return {
        "P1-5-solution": f"""
def agreement(model, path, images):
    images = {images}
    with torch.no_grad():
        a = model(torch.from_numpy(images)).numpy()
    b = onnxruntime.InferenceSession(path).run(None, {{"image": images}})[0]
    return {{"max_abs": {max_abs}, "max_rel": {max_rel}, "same_predictions": {same}}}
"""
    }


def table(parameters: str, macs: str) -> dict[str, str]:
    return {
        "P1-6-solution": f"""
def operator_table(path):
    model = onnx.load(path)
    shapes = shapes_of(model)
    weights = [t.name for t in model.graph.initializer if t.data_type == TensorProto.FLOAT]
    rows = []
    for node in model.graph.node:
        own = [name for name in node.input if name in weights]
        out = shapes[node.output[0]]
        weight = math.prod(shapes[own[0]]) if own else 0
        rows.append({{"op": node.op_type, "output": out, "parameters": {parameters}, "macs": {macs}}})
    return pd.DataFrame(rows)
"""
    }


def hand_made(nodes: str, batch: str = "'batch'") -> dict[str, str]:
    return {
        "P1-8-solution": f"""
def build_graph(weight, bias):
    nodes = {nodes}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [{batch}, weight.shape[0]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [{batch}, weight.shape[1]])
    stored = [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], stored), ir_version=10,
                             opset_imports=[helper.make_opsetid("", 18)])
"""
    }


def reader(sizes: str) -> dict[str, str]:
    """A small network in `small.onnx`; `sizes`: channels of its two convolutions, and epochs of training."""
    return {
        "P1-10-solution": f"""
first, second, epochs = {sizes}
rng = np.random.default_rng(0)
moved = np.concatenate([models.perturbed(tiny.train_images, rng) for _ in range(10)])
torch.manual_seed(0)
small = nn.Sequential(
    nn.AvgPool2d(2), nn.Conv2d(1, first, 3), nn.ELU(), nn.MaxPool2d(2),
    nn.Conv2d(first, second, 3), nn.ELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * second, 10),
)
if epochs:
    models.train(small, moved, np.tile(tiny.train_labels, 10), epochs=epochs, batch_size=64, lr=0.02)
torch.onnx.export(small.eval(), (torch.zeros(2, 1, 32, 32),), "small.onnx", {NAMES}, {DYNAMIC})
"""
    }


GOOD_LAYERS = """
self.conv1 = nn.Conv2d(1, 6, 5)
self.conv2 = nn.Conv2d(6, 16, 5)
self.fc1 = nn.Linear(400, 120)
self.fc2 = nn.Linear(120, 84)
self.fc3 = nn.Linear(84, 10)
"""
GOOD_FORWARD = """
x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
x = x.flatten(1)
x = torch.relu(self.fc1(x))
x = torch.relu(self.fc2(x))
return self.fc3(x)
"""
NAMES = 'input_names=["image"], output_names=["logits"]'
DYNAMIC = 'dynamic_shapes=({0: "batch"},), external_data=False'
BY_ITSELF = "x * torch.where(x[:, :1, :1, :1] > 0, -1.0, 1.0)"
FORKED = "[name for name in values if sum(name in each for each in inputs) >= 2]"
SAME = "(a.argmax(1) == b.argmax(1)).all()"
MAX_ABS, MAX_REL = "np.abs(a - b).max()", "(np.abs(a - b) / np.abs(a)).max()"
PARAMETERS = "sum(math.prod(shapes[name]) for name in own)"
MACS = "weight * math.prod(out[2:]) * (node.op_type in ('Conv', 'Gemm'))"
GEMM, RELU = ('helper.make_node("Gemm", ["x", "weight", "bias"], ["z"])', 'helper.make_node("Relu", ["z"], ["y"])')


QUICK = train("loss.backward(); optimizer.step()")
