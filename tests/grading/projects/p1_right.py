"""Right solutions of P1 in styles other than the source notebook's."""

from __future__ import annotations

SEQUENTIAL = {
    "P1-1-solution": """
class LeNetLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye = nn.Sequential(
            nn.Conv2d(1, 6, (5, 5), padding="valid"), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, (5, 5)), nn.ReLU(inplace=True), nn.MaxPool2d((2, 2), stride=2), nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
""",
    "P1-2-solution": """
class LeNet(LeNetLayers):
    def forward(self, x):
        return self.head(self.eye(x))
""",
    "P1-3-solution": """
from torch.utils.data import DataLoader, TensorDataset

def train(model, images, labels):
    loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0015)
    criterion = nn.CrossEntropyLoss()
    model.train()
    history = []
    for epoch in range(10):
        losses = []
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        history.append(np.mean(losses))
    return history
""",
    "P1-3-solution-2": """
def mistakes(model, images, labels):
    wrong = [i for i in range(len(images)) if int(model(images[i : i + 1]).argmax()) != int(labels[i])]
    return torch.tensor(wrong, dtype=torch.int32)
""",
}


LEGACY = {
    "P1-1-solution": """
class LeNetLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.strokes, self.shapes = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.a, self.b = nn.Linear(16 * 5 * 5, 120), nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)
""",
    "P1-2-solution": """
class LeNet(LeNetLayers):
    def forward(self, picture):
        pool = nn.MaxPool2d(2)
        hidden = pool(self.strokes(picture).clamp(min=0))
        hidden = pool(self.shapes(hidden).clamp(min=0))
        for layer in (self.a, self.b):
            hidden = layer(torch.flatten(hidden, start_dim=1)).clamp(min=0)
        return self.fc3(hidden)
""",
    "P1-4-solution": """
def to_onnx(model, path):
    model.eval()
    torch.onnx.export(model, torch.randn(1, 1, 32, 32), path, dynamo=False, opset_version=17,
                      input_names=["image"], output_names=["logits"],
                      dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}})
""",
    "P1-5-solution": """
def agreement(model, path, images):
    ours = np.concatenate([model(torch.tensor(images[i:i+1])).detach().numpy() for i in range(len(images))])
    theirs = exchange.run(path, images)["logits"]
    worst = abs(ours.astype("float64") - theirs)
    return {"max_abs": float(np.max(worst)), "max_rel": float(np.max(worst / abs(ours))),
            "same_predictions": list(ours.argmax(-1)) == list(theirs.argmax(-1)), "images": len(images)}
""",
}

PACKAGE = {
    "P1-4-solution": """
def to_onnx(model, path):
    model.eval()
    batch = torch.export.Dim("n", min=1, max=4096)
    program = torch.onnx.export(model, (torch.randn(3, 1, 32, 32),), dynamo=True,
                                input_names=["image"], output_names=["logits"], dynamic_shapes=({0: batch},))
    program.save(path, external_data=False)
""",
    "P1-7-solution": """
def forks(path):
    graph = onnx.load(path).graph
    weights = {tensor.name for tensor in graph.initializer}
    names = [each.name for each in graph.input if each.name not in weights]
    names += [name for node in graph.node for name in node.output]
    return [name for name in names if sum(name in node.input for node in graph.node) >= 2]
""",
    "P1-8-solution": """
from onnx import parser

def build_graph(weight, bias):
    k, n = weight.shape
    model = parser.parse_model(f'''<ir_version: 10, opset_import: ["" : 18]>
    g (float[rows, {k}] x) => (float[rows, {n}] y) {{
        h = Gemm(x, w, b)
        y = Relu(h)
    }}''')
    model.graph.initializer.extend([numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")])
    return model
""",
}

RIGHT: dict[str, dict[str, str]] = {
    "nn.Sequential and DataLoader": SEQUENTIAL,
    "other names and the older exporter": LEGACY,
    "the newer exporter, parser and a dictionary of lists": PACKAGE,
}
