"""SCALE-Sim's files: the values that are read, and the errors for the others."""

import pytest

from mlhood.dataflow.systolic import Array, ArrayLayer, gemm_layer, read_config, read_topology
from mlhood.errors import DataflowError

CONFIG = """[general]
run_name = GoogleTPU_v1_ws

[architecture_presets]
ArrayHeight:    256
ArrayWidth:     128
IfmapSramSzkB:    6144
FilterSramSzkB:   4096
OfmapSramSzkB:    2048
IfmapOffset:    0
Dataflow : ws
Bandwidth : 10

[run_presets]
InterfaceBandwidth: CALC
"""
HEADER = "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,\n"


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "file"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


# -- configurations


def test_a_configuration_is_parsed_to_an_array(write):
    path = write(CONFIG)
    assert read_config(path) == Array(256, 128, "ws", 6144, 4096, 2048, "GoogleTPU_v1_ws")


def test_other_spellings_are_accepted(write):
    old = CONFIG.replace("ArrayHeight", "arrayheight").replace(": ws", ": WS")
    text = "\ufeff" + old.replace("[general]\nrun_name = GoogleTPU_v1_ws", '[general]\nrun_name = "100% wide"')
    assert read_config(write(text)) == Array(256, 128, "ws", 6144, 4096, 2048, "100% wide")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER, "not a configuration"),
        ("[general]\nrun_name = x\n", "architecture_presets.* is missing"),
        (CONFIG.replace("ArrayWidth:     128\n", ""), "ArrayWidth is missing"),
        (CONFIG.replace("256", "256.5"), "invalid ArrayHeight"),
        (CONFIG.replace("2048", "0"), "invalid OfmapSramSzkB"),
        (CONFIG.replace(": ws", ": rs"), "unknown dataflow"),
        (CONFIG + "[run_presets]\n", "not a configuration"),
        (CONFIG + "[sparsity]\nSparsitySupport: True\n", "sparse"),
        (b"\x89PNG\xff", "not a text file"),
    ],
)
def test_an_invalid_configuration_is_rejected(write, text, message):
    path = write(text)
    with pytest.raises(DataflowError, match=message) as error:
        read_config(path)
    assert str(path) in str(error.value) or "dataflow" in message


def test_a_missing_file_is_rejected(tmp_path):
    with pytest.raises(DataflowError, match="cannot be read"):
        read_config(tmp_path / "missing.cfg")
    with pytest.raises(DataflowError, match="cannot be read"):
        read_topology(tmp_path)


# -- topologies


def test_convolutions_are_parsed_with_and_without_the_last_comma(write):
    rows = "Conv1,  224, 220,    11, 9,    3,      96,     4,\r\n\r\nfc, 1,1, 1,1, 256, 10, 1\n , , ,\n"
    assert read_topology(write(HEADER + rows)) == [
        ArrayLayer("Conv1", 224, 220, 11, 9, 3, 96, 4, 4),
        ArrayLayer("fc", 1, 1, 1, 1, 256, 10),
    ]


def test_products_are_parsed(write):
    layers = read_topology(write("Layer, M, N, K,\nqkv, 128, 64, 256,\nlast, 1, 2, 3, 1:4,\n"))
    assert layers == [gemm_layer("qkv", 128, 64, 256), gemm_layer("last", 1, 2, 3)]
    assert (layers[0].m, layers[0].n, layers[0].k) == (128, 64, 256)


def test_version_2_has_two_strides_and_version_3_a_ratio(write):
    rows = "two, 9, 9, 3, 3, 1, 2, 1, 3,\nthree, 9, 9, 3, 3, 1, 2, 2, 2:4,\n"
    two, three = read_topology(write(HEADER + rows))
    assert (two.stride_height, two.stride_width, three.stride_height, three.stride_width) == (1, 3, 2, 2)


def test_a_depthwise_convolution_is_a_layer_per_channel(write):
    layers = read_topology(write(HEADER + "ConvDP, 9, 9, 3, 3, 4, 1, 1,\n"))
    assert [layer.name for layer in layers] == [f"ConvDPChannel_{channel}" for channel in range(4)]
    assert {layer.channels for layer in layers} == {1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("", "no layers"),
        ("AlexNet,", "invalid row"),
        ("Conv1\t572\t572\t3\t3\t1\t64\t1", "invalid row"),
        ("Conv1, 9, 9, 3, 3, 1, 2,", "invalid row"),
        ("gate, 1, B, 1, 1, 4, 4, 1,", "invalid size"),
        ("Conv1, 9, 9, 3, 3, 0, 2, 1,", "invalid size"),
        ("Conv1, 9, 9, 10, 3, 1, 2, 1,", "larger than the image"),
    ],
)
def test_an_invalid_row_is_rejected_with_its_line(write, row, message):
    path = write(HEADER + "\n" + row)
    with pytest.raises(DataflowError, match=message) as error:
        read_topology(path)
    assert not row or f"{path}, line 3" in str(error.value)


@pytest.mark.parametrize("row", ["Conv1, 14, 14, 3, 3, 8, 16, 1,", "product, 4, 5, 6", "product, 4, 5, 6, 2:4,"])
def test_a_layer_in_place_of_the_header_is_rejected(write, row):
    path = write(f"{row}\n{row}\n")
    with pytest.raises(DataflowError, match="header is missing"):
        read_topology(path)


def test_a_size_of_thousands_of_digits_is_rejected(write):
    path = write(f"name,M,N,K\nproduct,{'9' * 5000},4,4\n")
    with pytest.raises(DataflowError, match="invalid size"):
        read_topology(path)
