"""Short names for the checks of P5."""

from __future__ import annotations

NAMES, LEAVES, ADDED, PROJECTED, LOGITS = (
    "names_become_a_tree",
    "leaves_are_jax_arrays_alone",
    "blocks_add_their_input",
    "blocks_project_their_input",
    "resnet_gives_logits",
)
CONV, STRIDES, PADDING, BIAS, PIXELS = (
    "convolution_is_right",
    "convolution_takes_strides",
    "convolution_pads_with_zeros",
    "convolution_adds_its_bias",
    "pixels_are_not_looped_over",
)
LARGEST, POOL_PADDING, POOL_STRIDES = (
    "pooling_takes_the_largest",
    "pooling_pads_with_less_than_all",
    "pooling_takes_strides",
)
NORM, EPS, RELU, ADD, MEANS, DENSE, DENSE_BIAS, SOFTMAX, STABLE = (
    "norm_takes_running_statistics",
    "norm_adds_eps_to_the_variance",
    "negative_numbers_become_zero",
    "sums_are_taken_place_by_place",
    "means_are_of_each_channel",
    "dense_multiplies_by_rows",
    "dense_adds_its_bias",
    "softmax_is_along_the_last_axis",
    "softmax_stands_large_numbers",
)
EARNED, TIE, NEVER, TIMED, NOT_RUN, COMPARED, AGREED, FASTER = (
    "compiling_is_earned_back",
    "as_long_is_not_less",
    "slower_calls_never_pay",
    "tracing_and_compiling_take_time",
    "nothing_is_run",
    "rows_are_comparisons",
    "columns_agree",
    "jax_is_faster_where_it_fuses",
)
SUMMED, ROWS, ROOTS, ZERO, RUNNING, SAME, DROPPED, SCALED, MASKS = (
    "positive_numbers_are_summed",
    "rows_are_summed_apart",
    "roots_are_found",
    "the_root_of_zero_stops",
    "means_run_along",
    "the_same_gives_the_same",
    "as_many_as_asked_are_dropped",
    "what_stays_is_scaled",
    "masks_come_from_the_key",
)
WRITTEN, SHAPES, NEW, RUN, NUMBERS, AGAIN, GONE, STAYS = (
    "operations_are_written_down",
    "results_have_their_shapes",
    "every_result_is_new",
    "programs_are_run",
    "numbers_stand_for_themselves",
    "values_are_used_again",
    "what_nobody_needs_is_gone",
    "what_outputs_need_stays",
)
BY_RELU, BY_SUM, STRETCHED, BY_DENSE, BY_BIAS, FILTERS, IMAGES, MOVED, PULLED, SHARED, BACK, TWICE = (
    "relu_lets_positive_numbers_pass",
    "sums_pass_the_gradient_on",
    "stretched_axes_are_added_up",
    "dense_gradients_are_products",
    "dense_bias_gets_the_whole_batch",
    "filters_get_what_their_windows_saw",
    "images_get_what_windows_gave",
    "strides_and_padding_are_kept",
    "logits_are_pulled_to_the_label",
    "the_mean_shares_the_gradient",
    "the_tape_is_read_backwards",
    "what_is_used_twice_gets_both",
)
LEAD, OWN, UNROLLED, LONG, SHORT = (
    "examples_lead_the_tree",
    "examples_have_their_own_gradient",
    "examples_are_not_looped_over",
    "long_gradients_are_shortened",
    "short_gradients_stay",
)
ENTROPY, DOWN, REMEMBERS, DONATED, READS = (
    "cross_entropy_is_a_mean",
    "a_step_goes_down_the_gradient",
    "the_optimizer_remembers",
    "buffers_are_donated",
    "trained_reads_unseen_digits",
)
ROUNDED, COMPILED, STRAIGHT, ENDS, AXIS, JAXPR = (
    "values_are_rounded_and_cut",
    "it_is_compiled",
    "gradients_go_straight_through",
    "gradients_end_at_the_range",
    "batches_keep_their_axis",
    "it_stands_in_the_jaxpr",
)
SPLIT, WHOLE, REDUCED, LAYERS, ONE_SUM, BYTES, RING, PROCESSES, STEP = (
    "batches_are_split",
    "gradients_are_of_the_whole_batch",
    "devices_add_up_their_gradients",
    "layers_are_right_in_parts",
    "one_sum_joins_the_parts",
    "gradient_bytes_are_counted",
    "rings_carry_their_bytes",
    "two_processes_give_the_gradient_of_one",
    "steps_take_compute_and_ring",
)
