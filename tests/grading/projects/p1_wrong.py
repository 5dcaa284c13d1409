"""Typical wrong solutions of P1, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, mistakes
from tests.grading.projects.p1_snippets import (
    BY_ITSELF,
    DYNAMIC,
    FORKED,
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
    forked,
    forward,
    hand_made,
    layers,
    reader,
    scanner,
    table,
    train,
)

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
ANY_PDF, LENET_PDF, FORKS = "any_graph_is_printed", "lenet_is_printed", "forks_are_found"
OPERATORS, LAYER, RUN = "graph_has_two_operators", "graph_computes_the_layer", "graph_is_run"
TENTH, FORTIETH = "reader_is_a_tenth_of_lenet", "reader_is_a_fortieth_of_lenet"
EIGHTIETH, COURSES = "reader_is_an_eightieth_of_lenet", "reader_is_as_small_as_the_courses"
FEATURES, ANY_CUT = "features_come_out_of_lenet", "any_network_can_be_cut"

KEEPS_AN_EXISTING_FILE = f"""
import os
def to_onnx(model, path):
    if not os.path.exists(path):
        torch.onnx.export(model.eval(), (torch.zeros(2, 1, 32, 32),), path, {NAMES}, {DYNAMIC})
with exchange.silence():
    to_onnx(LeNet(), "lenet.onnx")
"""

TOTAL_OF_ALL_EPOCHS = train(
    "loss.backward(); optimizer.step()", first="total = 0.0", returned="total / len(images)", total="total"
)

WRONG: tuple[Mistake, ...] = (
    *mistakes(
        "P1.1",
        (
            "padding that keeps the size",
            layers(GOOD_LAYERS.replace("nn.Conv2d(1, 6, 5)", "nn.Conv2d(1, 6, 5, padding=2)")),
            GEOMETRY,
            "`conv1` has the wrong padding",
        ),
        ("no bias", layers(GOOD_LAYERS.replace("(84, 10)", "(84, 10, bias=False)")), SHAPES, "has no bias"),
        (
            "inputs and outputs swapped",
            layers(GOOD_LAYERS.replace("(120, 84)", "(84, 120)")),
            SHAPES,
            "number of inputs first",
        ),
        ("no layers at all", layers("pass"), (SHAPES, GEOMETRY), "LeNet has two convolutions"),
    ),
    *mistakes(
        "P1.2",
        (
            "no flatten",
            forward(GOOD_FORWARD.replace("x = x.flatten(1)\n", "")),
            (LOGITS, VALUES, BATCH),
            "flatten all axes but the first",
        ),
        (
            "dropout while training",
            forward(GOOD_FORWARD.replace("return", "x = nn.functional.dropout(x, 0.5, self.training)\nreturn")),
            VALUES,
            "in training mode",
        ),
        (
            "the images are set to zero",
            forward(
                GOOD_FORWARD.replace("return", "images.zero_()\nreturn").replace("x = nn", "images = x\nx = nn", 1)
            ),
            (LOGITS, VALUES, BATCH),
            "`LeNet` changes its arguments",
        ),
        (
            "a softmax inside the model",
            forward(GOOD_FORWARD.replace("return self.fc3(x)", "return torch.softmax(self.fc3(x), 1)")),
            VALUES,
            "ends in a softmax",
        ),
        (
            "logits that depend on the rest of the batch",
            forward("x = x - x.mean(0)\n" + GOOD_FORWARD.strip()),
            (VALUES, BATCH),
            "depend on the rest of its batch",
        ),
    ),
    *mistakes(
        "P1.3",
        ("weights not trained", train("loss.backward()"), (MOVES, LOSS, ACCURACY), r"optimizer\.step\(\)"),
        ("a total that is never reset", TOTAL_OF_ALL_EPOCHS, LOSS, "set to 0 at the start of each epoch"),
        (
            "the last batch is dropped",
            train("loss.backward(); optimizer.step()", batches="torch.randperm(len(images)).split(32)[:-1]"),
            LOSS,
            "does not take every image once",
        ),
        (
            "half of the images in a batch",
            train("loss.backward(); optimizer.step()", batches="torch.randperm(len(images)).split(320)"),
            ACCURACY,
            "try smaller batches",
        ),
        (
            "a Boolean mask",
            {"P1-3-solution-2": "def mistakes(model, images, labels):\n    return model(images).argmax(1) != labels"},
            MISTAKES,
            "a Boolean mask",
        ),
        (
            "a number for a single mistake",
            {
                "P1-3-solution-2": "def mistakes(model, images, labels):\n"
                "    return (model(images).argmax(1) != labels).nonzero().squeeze()"
            },
            MISTAKES,
            "indices in another shape",
        ),
    ),
    *mistakes(
        "P1.4",
        ("a fixed batch size", export(f"{NAMES}, external_data=False"), FILE_BATCH, "fixed in the file"),
        (
            "exported before training and never again",
            {"P1-4-solution": KEEPS_AN_EXISTING_FILE},
            TRAINED,
            "exported before training, or",
        ),
        (
            "the mode is left as it is",
            export(f"{NAMES}, {DYNAMIC}", "model"),
            FILE_VALUES,
            "exported in training mode",
        ),
        ("no names", export(DYNAMIC), FILE_NAMES, "has the wrong name"),
        (
            "weights in a second file",
            export(f'{NAMES}, dynamic_shapes=({{0: "batch"}},), external_data=True'),
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
            scanner("torch.where(x[:, 0, 0, 0].mean() > 0, -x, x)"),
            INVERTED,
            "one value for each image",
        ),
        ("images of one size", scanner(BY_ITSELF, enlarged="x"), SCANNED, "shapes cannot be multiplied"),
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
            agreement("(a - b).max()", "((a - b) / a).max()", SAME),
            DIFFERENCES,
            "is wrong",
        ),
        (
            "ONNX's reference instead of ONNX Runtime",
            {
                "P1-5-solution": agreement(MAX_ABS, MAX_REL, SAME)["P1-5-solution"]
                .replace("onnxruntime.InferenceSession", "ReferenceEvaluator")
                .replace("def", "from onnx.reference import ReferenceEvaluator\ndef")
            },
            (DIFFERENCES, PREDICTIONS),
            "'FusedGemm' from domain 'com.microsoft' is unknown",
        ),
        (
            "relative to the file's logits",
            agreement(MAX_ABS, "(np.abs(a - b) / np.abs(b)).max()", SAME),
            DIFFERENCES,
            "is wrong",
        ),
        ("an integer for a Boolean", agreement(MAX_ABS, MAX_REL, f"int({SAME})"), PREDICTIONS, "is no Boolean"),
    ),
    *mistakes(
        "P1.6",
        (
            "a table written into the code",
            {
                "P1-6-solution": "def operator_table(path):\n"
                "    rows = [('Conv', [1, 6, 28, 28], 2572, 357600), ('Gemm', [1, 10], 59134, 58920)]\n"
                "    return pd.DataFrame(rows, columns=['op', 'output', 'parameters', 'macs'])"
            },
            (ROWS, PARAMETER_COUNTS, MAC_COUNTS, ANSWERS),
            "a small network that you have not seen",
        ),
        (
            "one row per operator type",
            {
                **table(PARAMETERS, MACS),
                "P1-6-solution-2": "rows_by_node = operator_table\n"
                "def operator_table(path):\n"
                "    return rows_by_node(path).groupby('op', as_index=False).agg(\n"
                "        {'output': 'first', 'parameters': 'sum', 'macs': 'sum'})\n"
                "answers = {'most_parameters': 'Gemm', 'most_macs': 'Conv'}",
            },
            ROWS,
            "not the nodes in graph order",
        ),
        ("biases not counted", table("weight", MACS), PARAMETER_COUNTS, "bias included"),
        (
            "every weight is multiplied",
            table(PARAMETERS, "weight * math.prod(out[2:])"),
            MAC_COUNTS,
            "of ConvTranspose|of MatMul",
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
            "an empty PDF",
            {
                "P1-7-solution": "import pypdf\ndef print_graph(path, pdf):\n"
                "    writer = pypdf.PdfWriter()\n    writer.add_blank_page(300, 600)\n    writer.write(pdf)"
            },
            (ANY_PDF, LENET_PDF),
            "does not show the graph",
        ),
        (
            "always the same graph",
            {"P1-7-solution": 'def print_graph(path, pdf):\n    exchange.render("lenet.onnx", pdf)'},
            ANY_PDF,
            "print the file at `path`",
        ),
        (
            "a PNG file named .pdf",
            {
                "P1-7-solution": "import shutil\ndef print_graph(path, pdf):\n"
                "    exchange.render(path, 'picture.png')\n    shutil.copy('picture.png', pdf)"
            },
            (ANY_PDF, LENET_PDF),
            "not a PDF that can be read",
        ),
        (
            "weights among the values",
            forked("[name for name in dict.fromkeys(sum(inputs, [])) if sum(name in each for each in inputs) >= 2]"),
            FORKS,
            "a weight does not count",
        ),
        ("exactly two readers", forked(FORKED.replace(">=", "==")), FORKS, "how many nodes have each value"),
        (
            "the results of the graph are read",
            forked(FORKED.replace(">= 2", "+ (name in [each.name for each in g.output]) >= 2")),
            FORKS,
            "how many nodes have each value",
        ),
        (
            "a value that one node reads twice",
            forked("[name for name in values if sum(inputs, []).count(name) >= 2]"),
            FORKS,
            "A node that reads a value twice is one",
        ),
    ),
    *mistakes(
        "P1.8",
        (
            "the weight transposed",
            hand_made(f'[helper.make_node("Gemm", ["x", "weight", "bias"], ["z"], transB=1), {RELU}]'),
            LAYER,
            "not a model that ONNX Runtime can run|wrong shape of",
        ),
        (
            "three operators",
            hand_made(
                '[helper.make_node("MatMul", ["x", "weight"], ["p"]), helper.make_node("Add", ["p", "bias"], ["z"]), '
                f"{RELU}]"
            ),
            OPERATORS,
            "wrong operators",
        ),
        (
            "two names for the batch",
            {
                "P1-8-solution": hand_made(f"[{GEMM}, {RELU}]")["P1-8-solution"].replace(
                    "['batch', weight.shape[1]]", "['rows', weight.shape[1]]"
                )
            },
            OPERATORS,
            "different batches",
        ),
        (
            "a list of outputs for the output",
            {
                "P1-8-solution-2": "def run_graph(model, x):\n"
                "    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {'x': x})"
            },
            RUN,
            "no array in what `run_graph` returns",
        ),
        (
            "ONNX's reference instead of ONNX Runtime",
            {
                "P1-8-solution-2": "from onnx.reference import ReferenceEvaluator\ndef run_graph(model, x):\n"
                "    return ReferenceEvaluator(model).run(None, {'x': x})[0]"
            },
            RUN,
            "which ONNX Runtime alone can run",
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
            reader("3, 5, 0"),
            (TENTH, FORTIETH, EIGHTIETH, COURSES),
            "reads too few of the digits",
        ),
        ("a network of a thousand numbers", reader("6, 10, 2"), (EIGHTIETH, COURSES), "holds too many numbers"),
    ),
    *mistakes(
        "P1.9",
        (
            "cut before the activation",
            {
                "P1-9-solution": "def cut(path, shorter):\n    g = onnx.load(path).graph\n"
                "    onnx.utils.extract_model(path, shorter, [g.input[0].name], [g.node[-2].input[0]])"
            },
            (FEATURES, ANY_CUT),
            "after the ReLU",
        ),
        (
            "what the node before the last computes",
            {
                "P1-9-solution": "def cut(path, shorter):\n    g = onnx.load(path).graph\n"
                "    onnx.utils.extract_model(path, shorter, [g.input[0].name], [g.node[-2].output[0]])"
            },
            ANY_CUT,
            "need not be the output of the node before it",
        ),
        (
            "names written into the code",
            {
                "P1-9-solution": "def cut(path, shorter):\n"
                "    onnx.utils.extract_model(path, shorter, ['image'], ['relu_3'])"
            },
            (FEATURES, ANY_CUT),
            "stops with an error",
        ),
        (
            "a second output instead of a cut",
            {
                "P1-9-solution": "def cut(path, shorter):\n    m = onnx.load(path)\n"
                "    value = helper.make_tensor_value_info(m.graph.node[-1].input[0], TensorProto.FLOAT, None)\n"
                "    m.graph.output.insert(0, value)\n    onnx.save(m, shorter)"
            },
            (FEATURES, ANY_CUT),
            "more than one output",
        ),
        (
            "nothing cut",
            {"P1-9-solution": "import shutil\ndef cut(path, shorter):\n    shutil.copy(path, shorter)"},
            (FEATURES, ANY_CUT),
            "last node is still in the graph",
        ),
    ),
)
