"""Constants that several folders share."""

# Axes of the attention in the two halves of an axial block, and the names of the halves.
AXES = ("rows", "columns")
# Base of the frequencies of rotary position embeddings: `rope_theta` in the configuration of
# DINOv3 in transformers, whose models all have it.
ROTARY_BASE = 100.0
# Targets of masked patch prediction.
TARGETS = ("mean_colour", "downsized", "pixels")
# The first two predict colors: equal parts of the range of each channel, [-1, 1].
COLOR_LEVELS = 8
# Loss of a segmenter, whose labels are masks, and its heads.
SEGMENTATION, SEGMENTER_HEADS = "segmentation", ("linear", "mask")
# Value of a mask's pixel of no class: it is neither trained on nor evaluated. As in PASCAL VOC.
IGNORED = 255
# Columns that hold images, in order of preference: ours and Ray's, Spark's, and that of Hugging
# Face's datasets.
ENCODED_COLUMNS = ("bytes", "content", "image")
# File of the settings in a directory of predictions. Readers of Parquet ignore files that begin
# with an underscore or a dot.
PREDICTIONS_RECORD = "_predictions.json"
# Types that `Predictor` computes in.
DTYPES = ("float32", "bfloat16", "float16")
