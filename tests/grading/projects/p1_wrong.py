"""Typical wrong solutions of P1, each with what it must cost and what must be said."""

from __future__ import annotations

from tests.grading.projects.gallery import Wrong
from tests.grading.projects.p1_snippets import (
    DYNAMIC,
    GEMM,
    GOOD_FORWARD,
    GOOD_LAYERS,
    MACS,
    MAX_ABS,
    MAX_REL,
    NAMES,
    PARAMETERS,
    RELU,
    SAME,
    agreement,
    export,
    forward,
    hand_made,
    layers,
    table,
    train,
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
ROWS, COUNTED, MULTIPLIED, ANSWERS = (
    "rows_follow_the_graph",
    "parameters_are_counted",
    "multiply_accumulates_are_counted",
    "questions_are_answered",
)
ANY_PDF, LENET_PDF = "any_graph_is_printed", "lenet_is_printed"
TWO, LAYER, RUN = "graph_has_two_operators", "graph_computes_the_layer", "graph_is_run"
FEATURES, ANY_CUT = "features_come_out_of_lenet", "any_network_can_be_cut"

KEEPS = f"""
import os
def to_onnx(model, path):
    if not os.path.exists(path):
        torch.onnx.export(model.eval(), (torch.zeros(2, 1, 32, 32),), path, {NAMES}, {DYNAMIC})
with exchange.silence():
    to_onnx(LeNet(), "lenet.onnx")
"""

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
        "exported before the training and kept",
        "P1.4",
        {"P1-4-solution": KEEPS},
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
        "differences without absolute values",
        "P1.5",
        agreement("(a - b).max()", "((a - b) / a).max()", SAME),
        (DIFFERENCES,),
        "is wrong",
    ),
    Wrong(
        "one image only",
        "P1.5",
        agreement(MAX_ABS, MAX_REL, SAME, "images[:1]"),
        (DIFFERENCES, PREDICTIONS),
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
        (ROWS, COUNTED, MULTIPLIED),
        "a small network that you have not seen",
    ),
    Wrong(
        "one row an operator type",
        "P1.6",
        {
            **table(PARAMETERS, MACS),
            "P1-6-solution-2": "rows_by_node = operator_table\n"
            "def operator_table(path):\n"
            "    return rows_by_node(path).groupby('op', as_index=False).agg(\n"
            "        {'output': 'first', 'parameters': 'sum', 'macs': 'sum'})\n"
            "answers = {'most_parameters': 'Gemm', 'most_macs': 'Conv'}",
        },
        (ROWS,),
        "not the nodes in their order",
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
        "a second output instead of a cut",
        "P1.9",
        {
            "P1-9-solution": "def cut(path, shorter):\n    m = onnx.load(path)\n"
            "    value = helper.make_tensor_value_info(m.graph.node[-1].input[0], TensorProto.FLOAT, None)\n"
            "    m.graph.output.insert(0, value)\n    onnx.save(m, shorter)"
        },
        (FEATURES, ANY_CUT),
        "more than one output",
    ),
    Wrong(
        "nothing cut",
        "P1.9",
        {"P1-9-solution": "import shutil\ndef cut(path, shorter):\n    shutil.copy(path, shorter)"},
        (FEATURES, ANY_CUT),
        "last node is still in the graph",
    ),
)
