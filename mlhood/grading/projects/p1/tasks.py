"""The tasks of P1 and what they are worth."""

from mlhood.grading.checks.task import Project, Question, Task
from mlhood.grading.projects.p1 import graph, network, stand_ins, surgery

P1 = Project(
    "P1",
    "LeNet from PyTorch to ONNX to Netron",
    tasks=(
        Task(
            "P1.1",
            "The layers of LeNet",
            checks=(network.parameters_have_lenets_shapes, network.convolutions_have_lenets_geometry),
            stand_in=stand_ins.LAYERS,
        ),
        Task(
            "P1.2",
            "The forward pass",
            checks=(
                network.gives_ten_logits_an_image,
                network.computes_lenet,
                network.takes_a_batch_of_any_size,
            ),
            stand_in=stand_ins.FORWARD,
        ),
        Task(
            "P1.3",
            "Train it on real digits",
            checks=(
                network.training_moves_every_weight,
                network.loss_is_told_and_falls,
                network.model_reads_unseen_digits,
                network.mistakes_are_found,
            ),
            stand_in=stand_ins.TRAINING,
        ),
        Task(
            "P1.4",
            "Export to ONNX with a dynamic batch",
            checks=(
                graph.lenet_onnx_holds_the_trained_model,  # first, before a call can write over the file
                graph.file_has_the_asked_names,
                graph.file_computes_the_model,
                graph.batch_is_dynamic,
            ),
            stand_in=stand_ins.EXPORT,
        ),
        Task(
            "P1.5",
            "Show that torch and ONNX Runtime agree",
            checks=(graph.differences_are_measured, graph.changed_predictions_are_noticed),
        ),
        Task(
            "P1.6",
            "Read the graph into a table",
            checks=(
                graph.rows_follow_the_graph,
                graph.parameters_are_counted,
                graph.multiply_accumulates_are_counted,
                graph.questions_are_answered,
            ),
        ),
        Task(
            "P1.7",
            "Print the graph from Netron",
            checks=(surgery.lenet_is_printed, surgery.any_graph_is_printed),
        ),
        Task(
            "P1.8",
            "Build a graph by hand",
            checks=(surgery.graph_has_two_operators, surgery.graph_computes_the_layer, surgery.graph_is_run),
        ),
        Task(
            "P1.9",
            "Cut the graph and read features",
            checks=(surgery.features_come_out_of_lenet, surgery.any_network_can_be_cut),
        ),
    ),
    questions=(
        Question("P1.10", "Why an exchange format?"),
        Question("P1.11", "What the numbers say"),
    ),
)
