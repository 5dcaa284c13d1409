"""Task parallelism: bounds on random graphs, exhaustive search on tiny ones, and ResNet."""

from itertools import combinations, pairwise, permutations, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlhood.compiler.analysis.parallelism import TaskGraph, bounds, list_schedule, tasks
from mlhood.compiler.analysis.parallelism_figures import critical_path, speed_up
from mlhood.compiler.compile import compile
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.elementwise import Relu
from mlhood.errors import CompilerError
from tests.plotting.texts import check_texts, strings


@st.composite
def random_tasks(draw, most=14):
    names = [f"t{i}" for i in range(draw(st.integers(1, most)))]
    costs = {name: draw(st.integers(0, 9)) for name in names}
    dependencies = {}
    for i, name in enumerate(names):
        dependencies[name] = tuple(draw(st.lists(st.sampled_from(names[:i]), unique=True, max_size=3))) if i else ()
    return TaskGraph(costs, dependencies)


workers = st.integers(1, 5)


def assert_valid(schedule):
    """Check that each task runs once, for its cost, after its dependencies, and alone on its worker."""
    slots = {slot.name: slot for slot in schedule.slots}
    assert sorted(slot.name for slot in schedule.slots) == sorted(schedule.tasks.costs)
    margin, free = 1e-9 * schedule.length, dict.fromkeys(range(schedule.workers), 0.0)
    for slot in sorted(schedule.slots, key=lambda slot: (slot.start, slot.end)):
        assert slot.end - slot.start == pytest.approx(schedule.tasks.costs[slot.name], abs=margin)
        ready = [slots[other].end for other in schedule.tasks.dependencies.get(slot.name, ())]
        assert slot.start >= max([free[slot.worker], *ready]) - margin
        free[slot.worker] = slot.end


@given(random_tasks(), workers)
def test_a_list_schedule_is_valid_and_within_grahams_bounds(dag, n):
    schedule = list_schedule(dag, n)
    assert_valid(schedule)
    least, most = bounds(dag, n)
    assert least - 1e-9 <= schedule.length <= most + 1e-9
    assert (least, most) == (max(dag.work / n, dag.span), dag.work / n + (1 - 1 / n) * dag.span)


@given(random_tasks())
def test_one_worker_takes_the_work_and_enough_workers_the_span(dag):
    assert list_schedule(dag, 1).length == dag.work
    assert list_schedule(dag, len(dag.costs)).length == dag.span
    assert list_schedule(dag, dag.width).length <= bounds(dag, dag.width)[1] + 1e-9


def shortest(dag, n):
    """Return the optimal length, from all topological orders and all assignments to workers."""
    best = dag.work
    for order in permutations(dag.costs):
        if any(order.index(other) > order.index(name) for name in order for other in dag.dependencies[name]):
            continue
        for assignment in product(range(n), repeat=len(order)):
            free, ends = [0] * n, {}
            for name, worker in zip(order, assignment, strict=True):
                start = max([free[worker], *(ends[other] for other in dag.dependencies[name])])
                free[worker] = ends[name] = start + dag.costs[name]
            best = min(best, max(free))
    return best


@settings(max_examples=25)
@given(random_tasks(most=5), st.integers(1, 2))
def test_a_list_schedule_is_at_most_twice_as_long_as_the_optimum(dag, n):
    best = shortest(dag, n)
    assert bounds(dag, n)[0] <= best <= list_schedule(dag, n).length <= (2 - 1 / n) * best


def descendants(dag):
    after = {name: set() for name in dag.costs}
    for name in reversed(dag.costs):
        for other in dag.users[name]:
            after[name] |= {other} | after[other]
    return after


WAIST = TaskGraph(dict.fromkeys("abcde", 1), {"a": (), "b": (), "c": ("a", "b"), "d": ("c",), "e": ("c",)})


@given(random_tasks(most=9))
@example(WAIST)
def test_the_width_matches_an_exhaustive_search(dag):
    below = descendants(dag)

    def is_antichain(names):
        return all(a not in below[b] and b not in below[a] for a, b in combinations(names, 2))

    max_antichain = dag.max_antichain()
    assert is_antichain(max_antichain)
    assert not any(is_antichain(names) for names in combinations(dag.costs, len(max_antichain) + 1))


@given(random_tasks(most=9))
def test_the_critical_path_is_a_most_expensive_path(dag):
    path = dag.critical_path()
    assert all(before in dag.dependencies[after] for before, after in pairwise(path))
    assert sum(dag.costs[name] for name in path) == dag.span

    def longest(name):
        return dag.costs[name] + max((longest(other) for other in dag.dependencies[name]), default=0)

    assert max(map(longest, dag.costs)) == dag.span


def test_the_task_with_the_highest_level_starts_first():
    dag = TaskGraph({"short": 1, "also": 1, "long": 1, "end": 8}, {"end": ("long",)})
    schedule = list_schedule(dag, 1)
    assert [slot.name for slot in schedule.slots] == ["long", "end", "short", "also"]
    assert list_schedule(dag, 2).length == 9
    assert list_schedule(dag, 2).speed_up == 11 / 9


# -- graphs


def diamond(size=4):
    graph = Graph("diamond")
    x = graph.placeholder("x", TensorType("float32", (size, 2)))
    left, right = (graph.add(Relu(), x, name=name).outputs[0] for name in ("left", "right"))
    graph.output(graph.add(Add(), left, right, name="sum").outputs[0])
    return graph


def test_the_nodes_of_a_graph_are_its_tasks():
    dag = tasks(diamond())
    assert dag == TaskGraph({"left": 1, "right": 1, "sum": 1}, {"left": (), "right": (), "sum": ("left", "right")})
    assert (dag.work, dag.span, dag.width, dag.parallelism) == (3, 2, 2, 1.5)


def test_resnet_is_nearly_a_chain(resnet18_onnx):
    executable = compile(resnet18_onnx)
    x = np.zeros((1, 3, 64, 64), np.float32)
    profile = executable.profile(rounds=1, **{next(iter(executable.graph.placeholders)): x})
    macs, seconds = (tasks(executable.graph, profile[column]) for column in ("macs", "seconds"))
    for dag in (macs, seconds):
        assert dag.width == 2  # the two branches of a residual block
        assert_valid(list_schedule(dag, 4))
        assert list_schedule(dag, 2).length == dag.span
    assert 1 < macs.parallelism < 1.1
    off_path = profile["macs"].drop(macs.critical_path())
    assert {name for name, count in off_path.items() if count} == {f"layer{i}.0.downsample.0" for i in (2, 3, 4)}
    assert off_path.sum() == macs.work - macs.span


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TaskGraph({}, {}), "nothing to schedule"),
        (lambda: TaskGraph({"a": -1}, {}), "invalid cost"),
        (lambda: TaskGraph({"a": 1, "b": 1}, {"a": ("b",)}), "precedes its dependencies"),
        (lambda: tasks(diamond(), {"left": 1}), "right, sum"),
        (lambda: list_schedule(tasks(diamond()), 0), "invalid number of workers"),
        (lambda: speed_up(tasks(diamond()), 17), "cannot be drawn"),
        (lambda: critical_path(TaskGraph({f"{i}": 1 for i in range(501)}, {})), "too large"),
        (lambda: TaskGraph({f"{i}": 1 for i in range(4001)}, {}).max_antichain(), "too many"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(CompilerError) as caught:
        call()
    assert message in str(caught.value)


# -- figures

BLOCK = TaskGraph(
    {"a": 3, "b": 1, "c": 3, "branch": 1, "end": 2},
    {"b": ("a",), "c": ("b",), "branch": ("a",), "end": ("c", "branch", "a")},
)
LONG = TaskGraph({f"t{i}": 1 + i % 5 for i in range(120)}, {f"t{i}": (f"t{i - 2}",) for i in range(2, 120)})
FIGURES = {
    "speed-up": lambda: speed_up(BLOCK),
    "speed-up, one worker": lambda: speed_up(TaskGraph({"a": 0}, {}), 1, "ms", [1]),
    "speed-up, many": lambda: speed_up(LONG, 16, "ms"),
    "critical path": lambda: critical_path(BLOCK),
    "critical path, one": lambda: critical_path(TaskGraph({"a": 0}, {})),
    "critical path, long": lambda: critical_path(LONG),
}


@pytest.mark.parametrize("name", FIGURES)
def test_texts_can_be_read(name):
    check_texts(FIGURES[name]())


def test_the_speed_up_is_drawn_with_its_bounds():
    figure = speed_up(BLOCK, 2, "ms", [1, 2, 3])
    assert "2 workers: 1.11x, idle 44%" in strings(figure)
    lines = {line.get_label(): list(line.get_ydata()) for line in figure.axes[1].lines}
    assert lines["list schedule"] == pytest.approx([1, 10 / 9, 10 / 9])
    assert lines["upper bound of any schedule: min(n, W / S)"] == pytest.approx([1, 10 / 9, 10 / 9])
    assert lines["lower bound of any list schedule"] == pytest.approx([1, 10 / 9.5, 10 / (10 / 3 + 6)])


def test_the_critical_path_is_summarised_and_tasks_off_the_path_are_labelled():
    texts = strings(critical_path(BLOCK))
    assert "critical path: 4 of 5 nodes, 90.0% of the work; width 2; work / span = 1.11" in texts
    assert "branch" in texts
    assert "b" not in texts
