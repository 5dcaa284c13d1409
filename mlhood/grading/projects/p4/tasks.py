"""The tasks of P4 and what they are worth."""

from mlhood.grading.checks.task import Project, Question, Task
from mlhood.grading.projects.p4 import arrays, orders, slicing, spaces, stand_ins, table, traffic, xla

P4 = Project(
    "P4",
    "Tiles that stay, tiles that pass",
    tasks=(
        Task(
            "P4.1",
            "Loops as a space",
            checks=(
                spaces.visits_go_tile_by_tile,
                spaces.tiles_at_the_edge_are_smaller,
                spaces.every_loop_is_split,
                spaces.blocks_are_taken_together,
            ),
        ),
        Task(
            "P4.2",
            "Two orders",
            checks=(
                orders.every_step_is_there_once,
                orders.input_tiles_stay,
                orders.weight_tiles_stay,
                orders.product_is_right,
                orders.slices_add_up,
            ),
            stand_in=stand_ins.STEPS,
            forbidden=("mlhood.dataflow.sliced",),
        ),
        Task(
            "P4.3",
            "Traffic by hand",
            checks=(
                traffic.tiles_into_l1,
                traffic.tiles_into_l2,
                traffic.tiles_into_l3,
                traffic.last_groups_count,
            ),
            forbidden=("mlhood.dataflow.slicing.traffic",),
        ),
        Task(
            "P4.4",
            "The slicing analysis",
            checks=(
                slicing.l1_holds_one_of_each,
                slicing.l2_holds_passing_tiles,
                slicing.l3_holds_staying_tiles,
                slicing.orders_change_places,
                slicing.tiles_are_halved_until_they_fit,
                slicing.the_papers_example_comes_out,
                slicing.what_never_fits_is_an_error,
            ),
            stand_in=stand_ins.ANALYSIS,
            forbidden=("mlhood.dataflow.slicing.fit", "mlhood.dataflow.slicing.analysis"),
        ),
        Task(
            "P4.5",
            "The table",
            checks=(
                table.analysed_is_taken_over,
                table.too_small_is_legal,
                table.too_large_breaks_a_cache,
                table.my_own_is_another,
                table.rows_are_comparisons,
                table.operations_are_told,
                table.orders_agree_and_analysed_is_faster,
            ),
            stand_in=stand_ins.TRIPLES,
            timed=True,
        ),
        Task(
            "P4.6",
            "A systolic array",
            checks=(
                arrays.weights_stay,
                arrays.inputs_stay,
                arrays.outputs_stay,
                arrays.last_folds_take_as_long,
                arrays.utilisation_is_the_busy_part,
            ),
            forbidden=("mlhood.dataflow.systolic",),
        ),
        Task(
            "P4.7",
            "What XLA made of it",
            checks=(
                xla.operations_are_counted,
                xla.quoted_operations_count,
                xla.attributes_are_no_operations,
                xla.fused_computations_are_found,
                xla.opcodes_are_listed,
                xla.parameters_are_left_out,
            ),
            forbidden=("mlhood.jaxlab.xla.hlo", "mlhood.jaxlab.xla.stablehlo"),
        ),
    ),
    questions=(
        Question("P4.8", "Why are WS and IS so close?"),
        Question("P4.9", "What would you build?"),
    ),
)
