"""Predict a folder of images on Spark; needs `pip install 'keras-vit-zoo[spark]'` and Java."""

import os
import pathlib
import sys

from pyspark.sql import SparkSession

import keras_vit
from keras_vit.distributed.spark import predict

# A model file that all machines can read; here with random weights.
model = keras_vit.ViT_Ti16(num_classes=2, image_size=32)
model.class_names = ("cat", "dog")
model.save("model.keras")

# Spark workers use this Python. On a cluster, pass its address to `master`.
os.environ["PYSPARK_PYTHON"] = sys.executable
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
# Fewer rows per batch than by default, because each image has kilobytes.
spark = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "256").getOrCreate()

images = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load("photos")
predictions = predict(images, "model.keras", outputs=["prediction", "probability"])
predictions.drop("modificationTime", "length").write.mode("overwrite").parquet("predictions")

rows = spark.read.parquet("predictions")
rows.groupBy("prediction").count().show()
assert rows.count() == len(list(pathlib.Path("photos").rglob("*.jpg")))
spark.stop()
