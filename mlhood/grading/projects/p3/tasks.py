"""The tasks of P3 and what they are worth."""

from mlhood.grading.checks.task import Project, Question, Task
from mlhood.grading.projects.p3 import amdahl, columns, convolutions, costs, ladder, roofline, stand_ins, table

# who has done already what the tasks ask for
CONVOLUTIONS = (
    "mlhood.kernels",
    "mlhood.jaxlab",
    "torch.nn",
    "torch.nn.functional.conv2d",
    "torch.conv2d",
    "scipy.signal",
    "jax.lax",
)

P3 = Project(
    "P3",
    "From a naive loop to past the libraries",
    tasks=(
        Task(
            "P3.1",
            "What a convolution costs",
            checks=(
                costs.windows_are_counted,
                costs.the_last_step_must_fit,
                costs.macs_are_counted,
                costs.bytes_are_counted,
                costs.intensity_is_flop_per_byte,
            ),
            stand_in=stand_ins.COSTS,
        ),
        Task(
            "P3.2",
            "A convolution by the definition",
            checks=(
                convolutions.values_are_right,
                convolutions.stride_is_taken,
                convolutions.padding_is_zero_all_around,
                convolutions.bias_is_added,
                convolutions.any_sizes_will_do,
                convolutions.inputs_are_left_alone,
            ),
            stand_in=stand_ins.DIRECT,
            forbidden=CONVOLUTIONS,
        ),
        Task(
            "P3.3",
            "Windows as columns",
            checks=(
                columns.columns_have_their_shape,
                columns.columns_stay_float32,
                columns.rows_are_in_order,
                columns.columns_are_in_order,
                columns.padding_holds_zeros,
            ),
            stand_in=stand_ins.COLUMNS,
            forbidden=CONVOLUTIONS,
        ),
        Task(
            "P3.4",
            "Convolution as one product",
            checks=(
                convolutions.product_is_right,
                convolutions.product_is_of_columns,
                convolutions.batches_are_kept_apart,
                convolutions.product_gets_its_bias,
                convolutions.product_stays_float32,
            ),
            stand_in=stand_ins.BLAS,
            forbidden=CONVOLUTIONS,
        ),
        Task(
            "P3.5",
            "The table",
            checks=(
                table.rates_are_told,
                table.rows_are_comparisons,
                table.operations_are_told,
                table.blas_is_faster_and_agrees,
            ),
            seconds=600.0,  # a hundred convolutions by the definition, on whatever laptop
            timed=True,
        ),
        Task(
            "P3.6",
            "The ladder",
            checks=(
                ladder.reordered_is_right,
                ladder.reordered_walks_along_rows,
                ladder.blocked_is_right,
                ladder.blocked_uses_blocks_again,
                ladder.panels_are_packed,
                ladder.packed_is_right,
                ladder.packed_reads_panels,
            ),
            forbidden=("mlhood.kernels",),
        ),
        Task(
            "P3.7",
            "Under the roof",
            checks=(roofline.the_lower_roof_counts, roofline.roofs_of_many_at_once, roofline.roofs_meet_at_the_ridge),
        ),
        Task(
            "P3.8",
            "What im2col costs",
            checks=(costs.columns_are_counted, costs.growth_is_against_the_input),
        ),
        Task(
            "P3.9",
            "What is a faster kernel worth?",
            checks=(
                amdahl.parts_are_divided_by_their_factors,
                amdahl.parts_not_named_keep_their_time,
                amdahl.the_rest_limits_the_speedup,
                amdahl.without_a_rest_there_is_no_limit,
            ),
        ),
    ),
    questions=(
        Question("P3.10", "Why does the library win?"),
        Question("P3.11", "When would you not use im2col?"),
    ),
)
