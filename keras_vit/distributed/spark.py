"""Predictions on a Spark cluster (`pip install 'keras-vit-zoo[spark]'`)."""

from keras_vit.distributed.batch import output_types
from keras_vit.serving.predictor import Predictor


def predict(dataframe, model, **settings):
    """Add the predictions of a model to a Spark data frame.

    Each of Spark's Python workers loads the model once. The number of rows per call of a worker is
    the setting `spark.sql.execution.arrow.maxRecordsPerBatch`. For images, set it to 256: the
    default is too large.

    Args:
        dataframe: a `pyspark.sql.DataFrame` with one of the image columns of
            `keras_vit.serving.Predictor`, as from `spark.read.format("binaryFile")`.
        model: path of the model, at which all machines of the cluster find it, or the name of a
            checkpoint.
        **settings: arguments of `Predictor`, such as `outputs` and `batch_size`.

    Returns:
        A `pyspark.sql.DataFrame` with the columns of `dataframe` except the images, the columns of
        `outputs`, and `error`.

    Raises:
        ValueError: if an argument of `Predictor` is out of range or the model cannot be loaded.
    """
    import pandas as pd
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    predictor = Predictor(model, **settings)
    column = predictor.image_column(dataframe.columns)
    added = output_types(predictor)
    kept = [field for field in dataframe.schema.fields if field.name != column]
    fields = [StructField(name, from_arrow_type(kind)) for name, kind in added.items()]

    def predict_frames(frames):
        for frame in frames:
            columns = predictor({name: frame[name].to_numpy() for name in frame})
            lists = {name: _as_objects(columns[name], columns["error"]) for name in added}
            yield pd.DataFrame({**{field.name: frame[field.name] for field in kept}, **lists})

    return dataframe.mapInPandas(predict_frames, StructType([*kept, *fields]))


def _as_objects(values, errors):
    """Return values as a list, with `None` for the images that cannot be decoded."""
    rows = values.tolist()
    if values.dtype == object:
        return rows
    return [row if error is None else None for row, error in zip(rows, errors, strict=True)]
