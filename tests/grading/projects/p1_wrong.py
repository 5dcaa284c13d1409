"""Typical wrong solutions of P1, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, edited, mistakes
from tests.grading.projects.p1_quick import train

SHAPES, GEOMETRY = "parameters_have_lenets_shapes", "convolutions_have_lenets_geometry"
LOGITS, VALUES, BATCH = "gives_ten_logits_an_image", "computes_lenet", "takes_a_batch_of_any_size"
MOVES, LOSS = "training_moves_every_weight", "loss_is_told_and_falls"
ACCURACY, MISTAKES = "model_reads_unseen_digits", "mistakes_are_found"
FILE_NAMES, FILE_VALUES = "file_has_the_asked_names", "file_computes_the_model"
SCANNED, INVERTED = "scanner_is_exported", "each_image_is_inverted_by_itself"
FILE_BATCH, TRAINED = "batch_is_dynamic", "lenet_onnx_holds_the_trained_model"
DIFFERENCES, PREDICTIONS = "differences_are_measured", "changed_predictions_are_noticed"
ROWS, PARAMETER_COUNTS = "rows_follow_the_graph", "parameters_are_counted"
MAC_COUNTS, ANSWERS = "multiply_accumulates_are_counted", "questions_are_answered"
FORKS, READERS_ARE = "forks_are_found", "readers_are_nodes_of_values"
OPERATORS, LAYER, RUN = "graph_has_two_operators", "graph_computes_the_layer", "graph_is_run"
TENTH, FORTIETH = "reader_is_a_tenth_of_lenet", "reader_is_a_fortieth_of_lenet"
EIGHTIETH, COURSES = "reader_is_an_eightieth_of_lenet", "reader_is_as_small_as_the_courses"
FEATURES, ANY_CUT = "features_come_out_of_lenet", "any_network_can_be_cut"

PARAMETERS_BY_NAME_ONLY = """
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
WRITTEN_TABLE = """
def operator_table(path):
    rows = [('Conv', [1, 6, 28, 28], 2572, 357600), ('Gemm', [1, 10], 59134, 58920)]
    return pd.DataFrame(rows, columns=['op', 'output', 'parameters', 'macs'])
"""
SESSION = ("onnxruntime.InferenceSession", "onnx.reference.ReferenceEvaluator")
READERS = "Counter(name for node in graph.node for name in set(node.input))"


def reader(first: int, second: int, epochs: int) -> dict[str, str]:
    """A network in `small.onnx` with these channels, trained for some epochs."""
    sizes = ("1, 3, 3", f"1, {first}, 3"), ("3, 5, 3", f"{first}, {second}, 3"), ("(20, 10)", f"({4 * second}, 10)")
    trained = ("models.train", "models.train" if epochs else "0 and models.train"), ("epochs=3", f"epochs={epochs}")
    return edited("P1-10-solution", *sizes, *trained, ("range(20)", "range(10)"), ("labels, 20", "labels, 10"))


WRONG: tuple[Mistake, ...] = (
    *mistakes(
        "P1.1",
        (
            "padding that keeps the size",
            (1, ("(1, 6, kernel_size=5)", "(1, 6, 5, padding=2)")),
            GEOMETRY,
            "wrong shape of what the layer `conv1` returns",
        ),
        ("no bias", (1, ("(84, 10)", "(84, 10, bias=False)")), SHAPES, "has no bias"),
        ("inputs, outputs swapped", (1, ("(120, 84)", "(84, 120)")), SHAPES, "of inputs first"),
        (
            "parameters by name only",
            {"P1-1-solution": PARAMETERS_BY_NAME_ONLY},
            (SHAPES, GEOMETRY),
            "the parameters are not",
        ),
    ),
    *mistakes(
        "P1.2",
        ("no flatten", (1, ("x = x.flatten(1)", "pass")), (LOGITS, VALUES, BATCH), "flatten all axes but the first"),
        (
            "dropout while training",
            (1, ("self.fc3(x)", "self.fc3(nn.functional.dropout(x, 0.5, self.training))")),
            VALUES,
            "in training mode",
        ),
        (
            "a softmax inside the model",
            (1, ("self.fc3(x)", "torch.softmax(self.fc3(x), 1)")),
            VALUES,
            "ends in a softmax",
        ),
        (
            "logits that depend on the rest of the batch",
            (1, ("conv1(x)", "conv1(x - x.mean(0))")),
            (VALUES, BATCH),
            "depend on the rest of its batch",
        ),
        (
            "ten zeros",
            (1, ("self.fc3(x)", "torch.zeros(len(x), 10)")),
            (LOGITS, VALUES, BATCH),
            "do not depend on",
        ),
    ),
    *mistakes(
        "P1.3",
        ("weights not trained", train(("optimizer.step()", "pass")), (MOVES, LOSS, ACCURACY), r"optimizer\.step\(\)"),
        (
            "the loss of the last batch",
            train(("total / len(images)", "loss.item()")),
            LOSS,
            "that is the loss of an epoch's last batch",
        ),
        ("the last batch is dropped", train(("(32)", "(32)[:-1]")), LOSS, "does not take every image once"),
        ("half of the images in a batch", train(("(32)", "(320)")), ACCURACY, "Smaller batches"),
        (
            "a Boolean mask",
            (2, ("torch.nonzero(predicted != labels).flatten()", "predicted != labels")),
            MISTAKES,
            "a Boolean mask",
        ),
    ),
    *mistakes(
        "P1.4",
        ("a fixed batch size", (1, ('dynamic_shapes=({0: "batch"},), ', "")), FILE_BATCH, "fixed in the file"),
        (
            "exported before training and never again",
            (
                1,
                ("torch.onnx", "Path(path).exists() or torch.onnx"),
                ("    ### END SOLUTION", 'with exchange.silence():\n    to_onnx(LeNet(), "lenet.onnx")'),
            ),
            TRAINED,
            "exported before training, or",
        ),
        ("the mode is left as it is", (1, ("model.eval()", "model")), FILE_VALUES, "exported in training mode"),
        ("no names", (1, ('input_names=["image"], output_names=["logits"],', "")), FILE_NAMES, "has the wrong name"),
        (
            "weights in a second file",
            (1, ("external_data=False", "external_data=True")),
            (FILE_NAMES, FILE_VALUES, FILE_BATCH, TRAINED),
            "not a model that ONNX Runtime can run",
        ),
        (
            "an `if` on numbers",
            {"P1-4-solution-2": "class Exportable(Scanner):\n    pass"},
            (SCANNED, INVERTED),
            "Could not guard on data-dependent expression",
        ),
        (
            "one decision for a whole batch",
            (2, ("x[:, :, :1, :1]", "x[:, 0, 0, 0].mean()")),
            INVERTED,
            "one value for each image",
        ),
        (
            "images of one size",
            (2, ("nn.functional.interpolate(x, size=(32, 32))", "x")),
            SCANNED,
            "shapes cannot be multiplied",
        ),
    ),
    *mistakes(
        "P1.5",
        (
            "numbers written into the code",
            {"P1-5-solution": "def agreement(m, p, i): return dict(max_abs=1e-6, max_rel=1e-4, same_predictions=True)"},
            (DIFFERENCES, PREDICTIONS),
            "`max_abs` is wrong",
        ),
        (
            "differences without absolute values",
            (1, ("np.abs(torch_logits - onnx_logits)", "torch_logits - onnx_logits")),
            DIFFERENCES,
            "is wrong",
        ),
        (
            "ONNX's reference instead of ONNX Runtime",
            (1, SESSION, ("    with", "    import onnx.reference\n    with")),
            (DIFFERENCES, PREDICTIONS),
            "'FusedGemm' from domain 'com.microsoft' is unknown",
        ),
        (
            "relative to the file's logits",
            (1, ("np.abs(torch_logits))", "np.abs(onnx_logits))")),
            DIFFERENCES,
            "is wrong",
        ),
        ("an integer for a Boolean", (1, (".all()", ".all().astype(int)")), PREDICTIONS, "is no Boolean"),
    ),
    *mistakes(
        "P1.6",
        (
            "a table written into the code",
            {"P1-6-solution": WRITTEN_TABLE},
            (ROWS, PARAMETER_COUNTS, MAC_COUNTS),
            "a small network that you have not seen",
        ),
        (
            "biases not counted",
            (1, ("for name in node.input if", "for name in node.input[:2] if")),
            PARAMETER_COUNTS,
            "bias included",
        ),
        (
            "every weight is multiplied",
            (1, ('node.op_type in {"Conv", "Gemm"}', "parameters and node.input[1:]")),
            MAC_COUNTS,
            "of PRelu|of MatMul",
        ),
        (
            "the two answers swapped",
            {"P1-6-solution-2": 'answers = {"most_parameters": "Conv", "most_macs": "Gemm"}'},
            ANSWERS,
            "not the largest alone",
        ),
    ),
    *mistakes(
        "P1.7",
        (
            "weights among the values",
            (
                1,
                (
                    "[value.name for value in graph.input]",
                    "[value.name for value in [*graph.initializer, *graph.input]]",
                ),
            ),
            READERS_ARE,
            "a weight is no value",
        ),
        (
            "the results of the graph are read",
            (1, ("[name] > 1", "[name] + (name in [each.name for each in graph.output]) > 1")),
            (FORKS, READERS_ARE),
            "how many nodes have each value",
        ),
        (
            "a value that one node reads twice",
            (1, (READERS, "Counter(name for node in graph.node for name in node.input)")),
            READERS_ARE,
            "a node that reads a value twice is one",
        ),
    ),
    *mistakes(
        "P1.8",
        (
            "the weight transposed",
            (1, ('["z"])', '["z"], transB=1)')),
            LAYER,
            "not a model that ONNX Runtime can run|wrong shape of",
        ),
        ("a list of outputs for the output", (2, ("(y,)", "y")), RUN, "no array in what `run_graph` returns"),
        (
            "ONNX's reference instead of ONNX Runtime",
            (2, SESSION, ("    session", "    import onnx.reference\n    session")),
            RUN,
            "which ONNX Runtime alone can run",
        ),
        (
            "always the same graph",
            (1, ("    nodes", "    weight, bias = 0 * weight, 0 * bias\n    nodes")),
            (OPERATORS, LAYER),
            "does not hold the weight",
        ),
    ),
    *mistakes(
        "P1.10",
        (
            "LeNet again",
            {"P1-10-solution": "import shutil\nshutil.copy('lenet.onnx', 'small.onnx')"},
            (TENTH, FORTIETH, EIGHTIETH, COURSES),
            "reads too few of the digits|holds too many numbers",
        ),
        (
            "a small network that was not trained",
            reader(3, 5, 0),
            (TENTH, FORTIETH, EIGHTIETH, COURSES),
            "reads too few of the digits",
        ),
        (
            "trained on the held-out digits",
            {cell: source.replace("tiny.train", "tiny.test") for cell, source in reader(8, 16, 15).items()},
            (TENTH, FORTIETH, EIGHTIETH, COURSES),
            "better than the training digits",
        ),
        ("a network of a thousand numbers", reader(6, 10, 2), (EIGHTIETH, COURSES), "holds too many numbers"),
    ),
    *mistakes(
        "P1.9",
        ("cut before the activation", (1, ("node[-1]", "node[-2]")), (FEATURES, ANY_CUT), "after the ReLU"),
        (
            "what the node before the last computes",
            (1, ("node[-1].input", "node[-2].output")),
            ANY_CUT,
            "need not be the output of the node before it",
        ),
        (
            "nothing cut",
            {"P1-9-solution": "import shutil\ndef cut(path, shorter):\n    shutil.copy(path, shorter)"},
            (FEATURES, ANY_CUT),
            "last node is still in the graph",
        ),
    ),
)
