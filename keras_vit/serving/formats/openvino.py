"""OpenVINO: the files `model.xml` and `model.bin`."""

import functools

import openvino as ov
from openvino import opset13

from keras_vit.models.structure import has_blocks
from keras_vit.serving.formats.graph import portable, write_graph

# The field of an OpenVINO file that records the precision in which to run the model.
PRECISION_KEY = ["runtime_options", "INFERENCE_PRECISION_HINT"]


def write(model, path, scratch, quantize, images):
    """Write a model as OpenVINO files; see `ExportFormat`."""
    write_graph(portable(model), scratch / "graph")
    converted = ov.convert_model(str(scratch / "graph"))
    if quantize == "int8":
        import nncf

        converted = nncf.quantize(
            converted,
            nncf.Dataset(images[:, None]),
            subset_size=len(images),
            # Allow asymmetric ranges, as NNCF does for Transformers by default.
            preset=nncf.QuantizationPreset.MIXED,
            # For Transformers, NNCF handles outliers in the activations.
            model_type=nncf.ModelType.TRANSFORMER if has_blocks(model) else None,
        )
    elif quantize == "bfloat16":
        _keep_weights_in_bfloat16(converted)
    # By default OpenVINO rounds weights to float16.
    ov.save_model(converted, str(path), compress_to_fp16=quantize == "float16")


def _keep_weights_in_bfloat16(model):
    """Round the kernels to bfloat16, and record that the model runs in bfloat16."""
    for node in model.get_ordered_ops():
        is_constant = node.get_type_name() == "Constant"
        if is_constant and node.get_element_type() == ov.Type.f32 and node.data.ndim > 1:
            rounded = opset13.constant(node.data, dtype=ov.Type.bf16)
            restored = opset13.convert(rounded, "f32").output(0)
            for user in node.output(0).get_target_inputs():
                user.replace_source_output(restored)
    model.validate_nodes_and_infer_types()
    model.set_rt_info("bf16", PRECISION_KEY)


def load(path, output):
    """Load OpenVINO files; see `ExportFormat`."""
    model = _core().read_model(path)
    # By default OpenVINO would run a float32 model in bfloat16 on CPUs that support it.
    has_precision = model.has_rt_info(PRECISION_KEY)
    precision = model.get_rt_info(PRECISION_KEY).value if has_precision else "f32"
    compiled = _core().compile_model(model, "CPU", {PRECISION_KEY[-1]: precision})
    (images,) = compiled.inputs
    names = [output.any_name for output in compiled.outputs]
    axes = images.partial_shape[1:]
    image_shape = tuple(None if axis.is_dynamic else axis.get_length() for axis in axes)

    def run(batch):
        return dict(zip(names, compiled(batch).values(), strict=True))

    return run, image_shape, None


@functools.cache
def _core():
    """Return one `openvino.Core` for the process.

    If a core were deleted, OpenVINO 2026.4 would unload its CPU plugin and free the thread's signal
    stack. A later Ctrl-C would then crash the process.
    """
    return ov.Core()
