"""Typical wrong solutions of P1, each with what it must cost and say; and right ones in other styles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wrong:
    """A wrong solution of one task.

    Attributes:
        cells: New source by cell id.
        loses: Names of the checks that must fail; all others of the notebook must pass.
        says: A regular expression that must be found in what the failed checks say.
    """

    name: str
    task: str
    cells: dict[str, str]
    loses: tuple[str, ...]
    says: str


def layers(body: str) -> dict[str, str]:
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return {
        "P1-1-solution": f"class LeNetLayers(nn.Module):\n    def __init__(self):\n        super().__init__()\n{lines}"
    }


def forward(body: str) -> dict[str, str]:
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    return {"P1-2-solution": f"class LeNet(LeNetLayers):\n    def forward(self, x):\n{lines}"}


def train(step: str, *, returned: str = "total / len(images)", epochs: int = 20, first: str = "") -> dict[str, str]:
    return {
        "P1-3-solution": f"""
def train(model, images, labels):
    {first}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    losses = []
    for _ in range({epochs}):
        total = 0.0
        for batch in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            {step}
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
SAME = "(a.argmax(1) == b.argmax(1)).all()"
MAX_ABS, MAX_REL = "np.abs(a - b).max()", "(np.abs(a - b) / np.abs(a)).max()"
PARAMETERS = "sum(math.prod(shapes[name]) for name in own)"
MACS = "weight * math.prod(out[2:])"
GEMM, RELU = (
    'helper.make_node("Gemm", ["x", "weight", "bias"], ["z"])',
    'helper.make_node("Relu", ["z"], ["y"])',
)

SHAPES, GEOMETRY = "parameters_have_lenets_shapes", "convolutions_have_lenets_geometry"
LOGITS, VALUES, BATCH = "gives_ten_logits_an_image", "computes_lenet", "takes_a_batch_of_any_size"
MOVES, LOSS, READS, MISTAKES = (
    "training_moves_every_weight",
    "loss_is_told_and_falls",
    "model_reads_unseen_digits",
    "mistakes_are_found",
)
FILE_NAMES, FILE_VALUES, FILE_BATCH, TRAINED = (
    "file_has_the_asked_names",
    "file_computes_the_model",
    "batch_is_dynamic",
    "lenet_onnx_holds_the_trained_model",
)
DIFFERENCES, PREDICTIONS = "differences_are_measured", "changed_predictions_are_noticed"
COUNTED, MULTIPLIED, ANSWERS = (
    "parameters_are_counted",
    "multiply_accumulates_are_counted",
    "questions_are_answered",
)
ANY_PDF, LENET_PDF = "any_graph_is_printed", "lenet_is_printed"
TWO, LAYER, RUN = "graph_has_two_operators", "graph_computes_the_layer", "graph_is_run"
FEATURES, ANY_CUT = "features_come_out_of_lenet", "any_network_can_be_cut"

WRONG: tuple[Wrong, ...] = (
    Wrong(
        "padding that keeps the size",
        "P1.1",
        layers(GOOD_LAYERS.replace("nn.Conv2d(1, 6, 5)", "nn.Conv2d(1, 6, 5, padding=2)")),
        (GEOMETRY,),
        "`conv1` has the wrong padding",
    ),
    Wrong(
        "padding, and a dense layer to match",
        "P1.1",
        layers(GOOD_LAYERS.replace("(1, 6, 5)", "(1, 6, 5, padding=2)").replace("400", "576")),
        (SHAPES, GEOMETRY),
        "120x576 instead",
    ),
    Wrong(
        "no bias",
        "P1.1",
        layers(GOOD_LAYERS.replace("(84, 10)", "(84, 10, bias=False)")),
        (SHAPES,),
        "has no bias",
    ),
    Wrong(
        "inputs and outputs swapped",
        "P1.1",
        layers(GOOD_LAYERS.replace("(120, 84)", "(84, 120)")),
        (SHAPES,),
        "number of inputs first",
    ),
    Wrong(
        "stride 2 instead of pooling",
        "P1.1",
        layers(GOOD_LAYERS.replace("(6, 16, 5)", "(6, 16, 5, stride=2)")),
        (GEOMETRY,),
        "`conv2` has the wrong stride",
    ),
    Wrong("no layers at all", "P1.1", layers("pass"), (SHAPES, GEOMETRY), "LeNet has two convolutions"),
    Wrong(
        "no flatten",
        "P1.2",
        forward(GOOD_FORWARD.replace("x = x.flatten(1)\n", "")),
        (LOGITS, VALUES, BATCH),
        r"x\.flatten\(1\)",
    ),
    Wrong(
        "a softmax inside the model",
        "P1.2",
        forward(GOOD_FORWARD.replace("return self.fc3(x)", "return torch.softmax(self.fc3(x), 1)")),
        (VALUES,),
        "softmax stands inside",
    ),
    Wrong(
        "one ReLU forgotten",
        "P1.2",
        forward(GOOD_FORWARD.replace("torch.relu(self.fc2(x))", "self.fc2(x)")),
        (VALUES,),
        "no ReLU behind the second dense layer",
    ),
    Wrong(
        "mean pooling",
        "P1.2",
        forward(GOOD_FORWARD.replace("max_pool2d", "avg_pool2d")),
        (VALUES,),
        "pools by the mean",
    ),
    Wrong(
        "images that depend on their batch",
        "P1.2",
        forward("x = x - x.mean(0)\n" + GOOD_FORWARD.strip()),
        (VALUES, BATCH),
        "depend on its batch",
    ),
    Wrong(
        "weights not trained",
        "P1.3",
        train("loss.backward()"),
        (MOVES, LOSS, READS),
        r"optimizer\.step\(\)",
    ),
    Wrong(
        "the sum of the losses",
        "P1.3",
        train("loss.backward(); optimizer.step()", returned="total"),
        (LOSS,),
        "mean over the epoch's batches",
    ),
    Wrong(
        "another model trained than the one that comes in",
        "P1.3",
        train("loss.backward(); optimizer.step()", first="model = LeNet()"),
        (MOVES, LOSS, READS),
        "same after training",
    ),
    Wrong(
        "one epoch",
        "P1.3",
        train("loss.backward(); optimizer.step()", epochs=1),
        (LOSS, READS),
        "too few of the held-out digits",
    ),
    Wrong(
        "the right ones instead of the mistakes",
        "P1.3",
        {
            "P1-3-solution-2": "def mistakes(model, images, labels):\n"
            "    return torch.nonzero(model(images).argmax(1) == labels).flatten()"
        },
        (MISTAKES,),
        "read wrongly",
    ),
    Wrong("a fixed batch", "P1.4", export(f"{NAMES}, external_data=False"), (FILE_BATCH,), "fixed in the file"),
    Wrong(
        "exported before the training",
        "P1.4",
        {"P1-4-given-1": 'with exchange.silence():\n    to_onnx(LeNet(), "lenet.onnx")'},
        (TRAINED,),
        "exported before the training",
    ),
    Wrong("other names", "P1.4", export(DYNAMIC), (FILE_NAMES,), "another name"),
    Wrong(
        "a softmax added on export",
        "P1.4",
        export(f"{NAMES}, {DYNAMIC}", "nn.Sequential(model, nn.Softmax(1)).eval()"),
        (FILE_VALUES, TRAINED),
        "wrong values in the exported model",
    ),
    Wrong(
        "weights in a second file",
        "P1.4",
        export(f'{NAMES}, dynamic_shapes=({{0: "batch"}},), external_data=True'),
        (FILE_NAMES, FILE_VALUES, FILE_BATCH, TRAINED),
        "not a model that ONNX Runtime can run",
    ),
    Wrong(
        "numbers typed by hand",
        "P1.5",
        {"P1-5-solution": "def agreement(m, p, i): return dict(max_abs=1e-6, max_rel=1e-4, same_predictions=True)"},
        (DIFFERENCES, PREDICTIONS),
        "`max_abs` is wrong",
    ),
    Wrong(
        "one image only",
        "P1.5",
        agreement(MAX_ABS, MAX_REL, SAME, "images[:1]"),
        (DIFFERENCES,),
        "over all images",
    ),
    Wrong(
        "relative to the largest logit",
        "P1.5",
        agreement(MAX_ABS, "np.abs(a - b).max() / np.abs(a).max()", SAME),
        (DIFFERENCES,),
        "`max_rel` is wrong",
    ),
    Wrong(
        "equal logits instead of equal predictions",
        "P1.5",
        agreement(MAX_ABS, MAX_REL, "np.allclose(a, b, atol=1e-4)"),
        (PREDICTIONS,),
        "change no prediction",
    ),
    Wrong(
        "the argmax of the wrong axis",
        "P1.5",
        agreement(MAX_ABS, MAX_REL, "(a.argmax(0) == b.argmax(0)).all()"),
        (PREDICTIONS,),
        "argmax of every row",
    ),
    Wrong(
        "a table typed by hand",
        "P1.6",
        {
            "P1-6-solution": "def operator_table(path):\n"
            "    rows = [('Conv', [1, 6, 28, 28], 2572, 357600), ('Gemm', [1, 10], 59134, 58920)]\n"
            "    return pd.DataFrame(rows, columns=['op', 'output', 'parameters', 'macs'])"
        },
        (COUNTED, MULTIPLIED),
        "a small network that you have not seen",
    ),
    Wrong("biases not counted", "P1.6", table("weight", MACS), (COUNTED,), "bias included"),
    Wrong("pixels forgotten", "P1.6", table(PARAMETERS, "weight"), (MULTIPLIED,), "macs of Conv are wrong"),
    Wrong("operations instead of pairs", "P1.6", table(PARAMETERS, f"2 * {MACS}"), (MULTIPLIED,), "the macs of"),
    Wrong(
        "the questions mixed up",
        "P1.6",
        {"P1-6-solution-2": 'answers = {"most_parameters": "Conv", "most_macs": "Gemm"}'},
        (ANSWERS,),
        "one dense layer alone",
    ),
    Wrong(
        "an empty PDF",
        "P1.7",
        {
            "P1-7-solution": "import pypdf\ndef print_graph(path, pdf):\n"
            "    writer = pypdf.PdfWriter()\n    writer.add_blank_page(300, 600)\n    writer.write(pdf)"
        },
        (ANY_PDF, LENET_PDF),
        "does not show the graph",
    ),
    Wrong(
        "always the same graph",
        "P1.7",
        {"P1-7-solution": 'def print_graph(path, pdf):\n    exchange.render("lenet.onnx", pdf)'},
        (ANY_PDF,),
        "print the file that comes in",
    ),
    Wrong(
        "a picture called PDF",
        "P1.7",
        {
            "P1-7-solution": "import shutil\ndef print_graph(path, pdf):\n"
            "    exchange.render(path, 'picture.png')\n    shutil.copy('picture.png', pdf)"
        },
        (ANY_PDF, LENET_PDF),
        "not a PDF that can be read",
    ),
    Wrong(
        "the weight transposed",
        "P1.8",
        hand_made(f'[helper.make_node("Gemm", ["x", "weight", "bias"], ["z"], transB=1), {RELU}]'),
        (LAYER,),
        "not a model that ONNX Runtime can run|wrong shape of",
    ),
    Wrong(
        "three operators",
        "P1.8",
        hand_made(
            '[helper.make_node("MatMul", ["x", "weight"], ["p"]), helper.make_node("Add", ["p", "bias"], ["z"]), '
            f"{RELU}]"
        ),
        (TWO,),
        "other operators",
    ),
    Wrong(
        "no bias in the graph",
        "P1.8",
        hand_made(f'[helper.make_node("Gemm", ["x", "weight"], ["z"]), {RELU}]'),
        (LAYER,),
        "wrong values",
    ),
    Wrong("one row only", "P1.8", hand_made(f"[{GEMM}, {RELU}]", batch="1"), (LAYER,), "number of rows is fixed"),
    Wrong(
        "the result computed without the model",
        "P1.8",
        {
            "P1-8-solution-2": "def run_graph(model, x):\n"
            "    w, b = [numpy_helper.to_array(t) for t in model.graph.initializer]\n"
            "    return np.maximum(x @ w + b, 0)"
        },
        (RUN,),
        "another activation",
    ),
    Wrong(
        "cut before the activation",
        "P1.9",
        {
            "P1-9-solution": "def cut(path, shorter):\n    g = onnx.load(path).graph\n"
            "    onnx.utils.extract_model(path, shorter, [g.input[0].name], [g.node[-2].input[0]])"
        },
        (FEATURES, ANY_CUT),
        "after the ReLU",
    ),
    Wrong(
        "names written down",
        "P1.9",
        {
            "P1-9-solution": "def cut(path, shorter):\n"
            "    onnx.utils.extract_model(path, shorter, ['image'], ['relu_3'])"
        },
        (FEATURES, ANY_CUT),
        "stops with an error",
    ),
    Wrong(
        "nothing cut",
        "P1.9",
        {"P1-9-solution": "import shutil\ndef cut(path, shorter):\n    shutil.copy(path, shorter)"},
        (FEATURES, ANY_CUT),
        "still gives the ten logits",
    ),
)

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
    for epoch in range(25):
        losses = []
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        history.append(np.mean(losses))
    return np.array(history)
""",
    "P1-3-solution-2": """
def mistakes(model, images, labels):
    return [i for i in range(len(images)) if int(model(images[i : i + 1]).argmax()) != int(labels[i])]
""",
}

FUNCTIONAL = {
    "P1-1-solution": """
class LeNetLayers(nn.Module):
    def __init__(self):
        super().__init__()
        def make(*shape):
            return nn.Parameter(torch.randn(*shape) * (2 / max(1, math.prod(shape[1:]))) ** 0.5 * (len(shape) > 1))
        self.k1, self.b1 = make(6, 1, 5, 5), make(6)
        self.k2, self.b2 = make(16, 6, 5, 5), make(16)
        self.w3, self.b3 = make(120, 400), make(120)
        self.w5, self.b5 = make(10, 84), make(10)
        self.w4, self.b4 = make(84, 120), make(84)
""",
    "P1-2-solution": """
import torch.nn.functional as F

class LeNet(LeNetLayers):
    def forward(self, x):
        x = F.relu(F.max_pool2d(F.conv2d(x, self.k1, self.b1), 2))
        x = F.relu(F.max_pool2d(F.conv2d(x, self.k2, self.b2), 2))
        x = x.reshape(x.shape[0], -1)
        x = F.relu(F.linear(x, self.w3, self.b3))
        return F.linear(F.relu(F.linear(x, self.w4, self.b4)), self.w5, self.b5)
""",
    "P1-9-solution": """
def cut(path, shorter):
    model = onnx.load(path)
    features = model.graph.node.pop().input[0]
    model.graph.output.pop()
    model.graph.output.append(helper.make_tensor_value_info(features, TensorProto.FLOAT, None))
    onnx.save(model, shorter)
""",
}

LEGACY = {
    **layers(
        GOOD_LAYERS.replace("conv1", "strokes").replace("conv2", "shapes").replace("fc1", "a").replace("fc2", "b")
    ),
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
    "P1-6-solution-2": """
t = operator_table("lenet.onnx")
totals = {op: (rows.parameters.sum(), rows.macs.sum()) for op, rows in t.groupby("op")}
answers = dict(most_parameters=max(totals, key=lambda op: totals[op][0]),
               most_macs=max(totals, key=lambda op: totals[op][1]))
""",
    "P1-8-solution-2": """
def run_graph(model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run([o.name for o in session.get_outputs()], {session.get_inputs()[0].name: x})
""",
}

PACKAGE = {
    "P1-2-solution": """
class LeNet(LeNetLayers):
    def forward(self, x):
        steps = [self.conv1, torch.relu, nn.MaxPool2d(2), self.conv2, torch.relu, nn.MaxPool2d(2), nn.Flatten(),
                 self.fc1, torch.relu, self.fc2, torch.relu, self.fc3]
        for step in steps:
            x = step(x)
        return x
""",
    "P1-4-solution": """
def to_onnx(model, path):
    model.eval()
    batch = torch.export.Dim("n", min=1, max=4096)
    program = torch.onnx.export(model, (torch.randn(3, 1, 32, 32),), dynamo=True,
                                input_names=["image"], output_names=["logits"], dynamic_shapes={"x": {0: batch}})
    program.save(path, external_data=False)
""",
    "P1-6-solution": """
def operator_table(path):
    model = onnx.load(path)
    shapes = shapes_of(model)
    table = {"op": [], "output": [], "parameters": [], "macs": []}
    for node in model.graph.node:
        size = {t.name: int(np.prod(t.dims)) for t in model.graph.initializer if t.data_type == 1}
        table["op"].append(node.op_type)
        table["output"].append(tuple(shapes[node.output[0]]))
        table["parameters"].append(sum(size.get(name, 0) for name in node.input))
        macs = 0
        if node.op_type == "Conv":
            n, f, h, w = shapes[node.output[0]]
            macs = f * h * w * math.prod(shapes[node.input[1]][1:])
        if node.op_type == "Gemm":
            macs = math.prod(shapes[node.input[1]])
        table["macs"].append(macs)
    return pd.DataFrame(table, index=[f"node {i}" for i in range(len(table["op"]))])
""",
    "P1-7-solution": """
from pathlib import Path

def print_graph(path, pdf):
    return exchange.render(Path(path), Path(pdf))
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
    "as it is": {},
    "nn.Sequential and DataLoader": SEQUENTIAL,
    "plain parameters and functions": FUNCTIONAL,
    "other names and the older exporter": LEGACY,
    "the newer exporter, parser and a dictionary of lists": PACKAGE,
}
