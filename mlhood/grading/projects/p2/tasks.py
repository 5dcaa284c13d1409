"""The tasks of P2 and what they are worth."""

from mlhood.grading.checks.task import Project, Question, Task
from mlhood.grading.projects.p2 import accuracy, importing, integers, loops, rewrites, schemas, shapes, stand_ins

# the package's own rewrites, each under all of its names, and what runs them
PASSES = (
    "mlhood.compiler.passes.PASSES",
    "mlhood.compiler.passes.optimize",
    "mlhood.compiler.passes.fold_batch_normalization",
    "mlhood.compiler.passes.batch_normalization",
    "mlhood.compiler.passes.fuse_activation",
    "mlhood.compiler.passes.activation",
)

P2 = Project(
    "P2",
    "A compiler for networks: from ONNX to integers",
    tasks=(
        Task(
            "P2.1",
            "Two loop nests made one",
            checks=(
                loops.one_nest_computes_the_layer,
                loops.nothing_is_stored_in_between,
                loops.traffic_is_predicted,
            ),
            forbidden=("torch.nn", "mlhood.kernels"),
        ),
        Task(
            "P2.2",
            "Import rules",
            checks=(importing.relu_is_imported, importing.max_pool_is_imported, importing.conv_is_imported),
            stand_in=stand_ins.IMPORTING,
        ),
        Task(
            "P2.3",
            "Which type comes out?",
            checks=(
                shapes.convolution_has_its_shape,
                shapes.batch_and_element_are_kept,
                shapes.misfits_are_refused,
                shapes.pooling_has_its_type,
            ),
            stand_in=stand_ins.TYPES,
        ),
        Task(
            "P2.4",
            "Two rewrites",
            checks=(
                rewrites.batchnorm_is_folded,
                rewrites.folding_leaves_others_alone,
                rewrites.relu_is_fused,
                rewrites.fusing_leaves_others_alone,
                rewrites.rewrites_say_what_they_did,
            ),
            stand_in=stand_ins.REWRITES,
            forbidden=PASSES,
        ),
        Task(
            "P2.5",
            "Four ways to choose",
            checks=(
                schemas.asymmetric_is_right,
                schemas.symmetric_is_right,
                schemas.symmetric_unsigned_is_right,
                schemas.power_of_two_is_right,
            ),
            stand_in=stand_ins.PARAMETERS,
            forbidden=("mlhood.compiler.quantize",),
        ),
        Task(
            "P2.6",
            "An integer convolution",
            checks=(
                integers.sums_are_right,
                integers.padding_stands_for_zero,
                integers.sums_do_not_overflow,
                integers.rescale_rounds,
                integers.rescale_saturates,
            ),
            forbidden=(
                "torch.nn",
                "torch.nn.functional.conv2d",
                "torch.conv2d",
                "scipy.signal",
                "mlhood.kernels",
                "mlhood.compiler.backends",
            ),
        ),
        Task(
            "P2.7",
            "What does it cost?",
            checks=(accuracy.sqnr_is_measured, accuracy.rows_are_measured, accuracy.answers_fit_the_table),
            forbidden=("mlhood.compiler.quantize.sqnr", "mlhood.compiler.quantize.report"),
        ),
    ),
    questions=(
        Question("P2.8", "When may a compiler fuse?"),
        Question("P2.9", "Who should choose the schema?"),
    ),
)
