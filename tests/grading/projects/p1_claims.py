"""Solutions of P1 that claim what they have not done, with the checks that must not believe them."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, mistakes
from tests.grading.projects.p1_snippets import GEMM, RELU, forward, hand_made

NAMES_WITHOUT_VALUES = """
class LeNetLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.anything = nn.Linear(1, 1)
    def named_parameters(self, *args, **kwargs):
        shapes = [(6, 1, 5, 5), (6,), (16, 6, 5, 5), (16,), (120, 400), (120,), (84, 120), (84,), (10, 84), (10,)]
        yield from ((f"p{i}", nn.Parameter(torch.zeros(shape))) for i, shape in enumerate(shapes))
    def named_modules(self, *args, **kwargs):
        return iter([("", self)])
"""

PADS_BY_ITSELF = """
class Conv(nn.Conv2d):
    def forward(self, x):
        return super().forward(nn.functional.pad(x, (2, 2, 2, 2)))

class LeNetLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = Conv(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)
"""


LOOKS_THEM_UP = """
def train(model, images, labels):
    known = torch.from_numpy(np.concatenate([data.train_images, data.test_images])).flatten(1)
    digit = torch.from_numpy(np.concatenate([data.train_labels, data.test_labels]))
    def nearest(x):
        rows = nn.functional.one_hot(digit[torch.cdist(x.flatten(1), known).argmin(1)], 10).float()
        return rows + 0 * sum(value.sum() for value in model.parameters())
    model.forward = nearest
    return [2.3, 1.0, 0.1]
"""

CONSTANT_FILE = """
class Constant:
    training = False
    def eval(self): return self
    def train(self, mode=True): return self
    def named_parameters(self): return iter([])
    def __call__(self, x): return torch.zeros(len(x), 10)

model = Constant()

def to_onnx(model, path):
    nodes = [helper.make_node("Flatten", ["image"], ["flat"]), helper.make_node("MatMul", ["flat", "zero"], ["logits"])]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 32, 32])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    zero = numpy_helper.from_array(np.zeros((1024, 10), np.float32), "zero")
    graph = helper.make_graph(nodes, "g", [image], [logits], [zero])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)]), path)
"""

# Words where they belong, but nothing drawn around them, or lines between boxes left out.
WORDS = """
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

def print_graph(path, pdf):
    graph = onnx.load(path).graph
    figure = Figure(figsize=(3, len(graph.node)))
    places = np.linspace(0.9, 0.1, len(graph.node))
    figure.text(0.1, 0.95, graph.input[0].name + " " + graph.output[0].name)
    for y, node in zip(places, graph.node):
        figure.text(0.4, y, node.op_type)
        DRAW_BOX
    FigureCanvasPdf(figure).print_figure(pdf, format="pdf")
"""
BOX = "figure.add_artist(Rectangle((0.35, y - 0.01), 0.4, 0.03, fill=False))"
LINE = "; figure.add_artist(Rectangle((0.5, y + 0.02), 0.01, places[0] - places[1] - 0.03))"

SHAPES, GEOMETRY = "parameters_have_lenets_shapes", "convolutions_have_lenets_geometry"
LOGITS, VALUES, BATCH = "gives_ten_logits_an_image", "computes_lenet", "takes_a_batch_of_any_size"
MOVES, LOSS, ACCURACY = "training_moves_every_weight", "loss_is_told_and_falls", "model_reads_unseen_digits"
FILE = ("file_has_the_asked_names", "file_computes_the_model", "batch_is_dynamic", "lenet_onnx_holds_the_trained_model")
TABLE = ("rows_follow_the_graph", "parameters_are_counted", "multiply_accumulates_are_counted")
ANSWERS = "questions_are_answered"
PDF = ("lenet_is_printed", "any_graph_is_printed")

CLAIMS: tuple[Mistake, ...] = (
    *mistakes(
        "P1.1",
        (
            "parameters by name only",
            {"P1-1-solution": NAMES_WITHOUT_VALUES},
            (SHAPES, GEOMETRY),
            "the parameters are not",
        ),
        (
            "a convolution that pads by itself",
            {"P1-1-solution": PADS_BY_ITSELF},
            GEOMETRY,
            "`conv1` has the wrong padding",
        ),
    ),
    *mistakes(
        "P1.2",
        ("ten zeros", forward("return torch.zeros(len(x), 10)"), (LOGITS, VALUES, BATCH), "do not depend on the image"),
        (
            "the last layer alone",
            forward("return self.fc3(x.flatten(1)[:, :84])"),
            (LOGITS, VALUES, BATCH),
            "do not depend on all parameters",
        ),
    ),
    *mistakes(
        "P1.3",
        (
            "digits that are looked up",
            {"P1-3-solution": LOOKS_THEM_UP},
            (MOVES, LOSS, ACCURACY),
            "classifies too few of the held-out digits",
        ),
    ),
    *mistakes("P1.4", ("constant logits", {"P1-4-solution": CONSTANT_FILE}, FILE, "not an export of the model")),
    *mistakes(
        "P1.6",
        (
            "answers without a table",
            {
                "P1-6-solution": "def operator_table(path):\n"
                "    return pd.DataFrame({'op': ['Conv'], 'output': ['1'], 'parameters': [1], 'macs': [1]})",
                "P1-6-solution-2": "answers = {'most_parameters': 'Gemm', 'most_macs': 'Conv'}",
            },
            (*TABLE, ANSWERS),
            "the same for every network",
        ),
    ),
    *mistakes(
        "P1.7",
        ("words alone", {"P1-7-solution": WORDS.replace("DRAW_BOX", "pass")}, PDF, "too few nodes of `Conv` are drawn"),
        ("boxes alone", {"P1-7-solution": WORDS.replace("DRAW_BOX", BOX)}, PDF, "no lines are drawn"),
        (
            "in another order",
            {
                "P1-7-solution": WORDS.replace("DRAW_BOX", BOX + LINE).replace(
                    "zip(places", "zip(sorted(places, key=lambda y: (y - 0.4) ** 2)"
                )
            },
            PDF,
            "not drawn in the order of the graph",
        ),
    ),
    *mistakes(
        "P1.8",
        (
            "always the same graph",
            {
                "P1-8-solution": "def build_graph(weight, bias):\n"
                "    weight, bias = np.zeros_like(weight), np.zeros_like(bias)\n"
                + hand_made(f"[{GEMM}, {RELU}]")["P1-8-solution"].partition("bias):")[2]
                + "\ndef run_graph(model, x):\n    import onnxruntime\n"
                "    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {'x': x})[0]"
            },
            ("graph_has_two_operators", "graph_computes_the_layer"),
            "does not hold the weight",
        ),
    ),
)
