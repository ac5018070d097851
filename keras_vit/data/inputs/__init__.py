"""Images to predict, by whatever names them: a dataset, folders and files, or Parquet files."""
