PYTHON ?= python3
VENV ?= .venv
# PyTorch's default build for Linux brings several gigabytes of CUDA; this release has a CPU build
# where the package index offers one.
TORCH ?= torch

BIN := $(VENV)/bin
# What runs on every backend. Files are found, read and written in the same way on all of them.
CORE := $(foreach part,layers models,tests/$(part) keras_vit/$(part)) tests/data/test_labels.py tests/training/test_optimizers.py tests/training/test_paper_optimizer.py \
	tests/inspection/test_attention.py::test_scores_are_the_originals keras_vit/inspection tests/evaluation/test_compute.py \
	tests/checkpoints/test_reference.py \
	$(foreach test,logits_and_intermediates the_pooling_of_bit_is_padded_with_zeros,tests/checkpoints/test_resnets.py::test_$(test)) \
	keras_vit/checkpoints \
	--ignore tests/models/test_variants.py
# Compiled for seconds each there, and run on torch.
SLOW_ON_JAX := $(foreach part,remat masked_patches,--ignore tests/models/test_$(part).py) \
	--deselect tests/models/test_resnet.py::test_resnet_keeps_the_contract
# Keras is what setup.cfg asks for; the others are the oldest that were tried with it and pass. (JAX
# 0.4.38 now and then gives NaN for a gradient in float16 on CPUs.)
MINIMUM := keras==3.12.0 numpy==1.26.0 scipy==1.12.0 h5py==3.10.0 jax==0.6.2
# Test files are shared out to two processes.
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n 2 --dist loadfile
export TF_CPP_MIN_LOG_LEVEL ?= 3
# JAX spends its time here on compiling small things: they are kept for the next process, and LLVM
# does not make them faster.
export JAX_COMPILATION_CACHE_DIR ?= $(abspath $(VENV))/jax-cache
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES ?= -1
test-backends test-minimum: export XLA_FLAGS ?= --xla_backend_optimization_level=0

.PHONY: demo test test-backends test-interop test-browser test-no-tensorflow test-minimum test-examples test-large lint bench clean

# The main job, end to end, on data that needs no download.
demo: $(VENV)/.demo
	$(BIN)/keras-vit quickstart

# The default suite, on the TensorFlow backend.
test: $(VENV)/.test
	$(PYTEST) $(PARALLEL)

# TensorFlow with several devices; layers, models and several devices on the two other backends.
test-backends: $(VENV)/.backends
	$(PYTEST) -n 2 -m processes tests/training/test_distribution.py tests/evaluation/test_distributed_evaluation.py
	KERAS_BACKEND=jax $(PYTEST) $(PARALLEL) $(CORE) $(SLOW_ON_JAX) tests/training/test_distribution.py \
		tests/test_imports.py::test_core_runs_without_importing_tensorflow
	KERAS_BACKEND=jax $(PYTEST) -n 2 tests/serving/test_saved_model.py -k "float32-3 or flagged or without_keras or hybrid"
	KERAS_BACKEND=torch $(PYTEST) $(PARALLEL) $(CORE) tests/evaluation/test_memory.py

# Checkpoint files of and for the real transformers, timm and keras-hub. timm asks for torchvision,
# which has no build for CPUs alone; its models do without.
test-interop: $(VENV)/.interop
	$(PYTEST) -m interop tests/interop

# Pages in a real browser: chromium and chromedriver, which come with the operating system.
test-browser: $(VENV)/.browser
	$(PYTEST) -m browser tests/inspection

# The core in an environment that has no TensorFlow at all.
test-no-tensorflow:
	$(PYTHON) -m venv $(VENV)-jax
	$(VENV)-jax/bin/pip install --quiet keras jax scipy pytest
	$(VENV)-jax/bin/pip install --quiet --no-deps .
	KERAS_BACKEND=jax $(VENV)-jax/bin/python .ci/without_tensorflow.py

# Layers and models with the oldest versions that are supported, on Python 3.11.
test-minimum:
	$(PYTHON) -m venv $(VENV)-minimum
	$(VENV)-minimum/bin/pip install --quiet $(MINIMUM) pytest-xdist hypothesis
	KERAS_BACKEND=jax $(VENV)-minimum/bin/python -m pytest $(PARALLEL) tests/layers keras_vit/layers keras_vit/models \
		$(foreach test,freezing surgery vit,tests/models/test_$(test).py)

# The examples, the Python of the pages, and commands from end to end, as a reader would run them.
test-examples: $(VENV)/.test
	$(PYTEST) -n 2 -m examples tests

# Models of several gigabytes, every combination of what the other targets test a part of, and runs
# and exports that are killed again and again.
test-large: $(VENV)/.backends
	$(PYTEST) -n 2 -m large

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/import_time.py
	$(BIN)/python benchmarks/loading.py
	$(BIN)/python benchmarks/loading.py --variant ViT_L16 --runs 3
	$(BIN)/python benchmarks/input_pipeline.py
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/throughput.py --dtype mixed_bfloat16
	$(BIN)/python benchmarks/throughput.py --model BiT_R50x1
	$(BIN)/python benchmarks/throughput.py --model BiT_R50x1 --backend torch --runs 8
	$(BIN)/python benchmarks/throughput.py --model R50_B16 --backend torch --batch-size 4 --runs 6
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/pretraining.py
	$(BIN)/python benchmarks/fewshot.py
	$(BIN)/python benchmarks/evaluation.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/requests_under_load.py

clean:
	rm -rf $(VENV) $(VENV)-jax $(VENV)-minimum build dist *.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python setup.cfg
	$(BIN)/pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.test: $(BIN)/python setup.cfg
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $@

$(VENV)/.backends: $(VENV)/.test
	$(BIN)/pip install --quiet '$(TORCH)' jax optax
	touch $@

$(VENV)/.interop: $(VENV)/.backends
	$(BIN)/pip install --quiet transformers keras-hub pyyaml
	$(BIN)/pip install --quiet --no-deps timm
	touch $@

$(VENV)/.browser: $(VENV)/.test
	$(BIN)/pip install --quiet selenium
	touch $@

$(VENV)/.lint: $(BIN)/python
	$(BIN)/pip install --quiet ruff==0.17.5
	touch $@

$(VENV)/.bench: $(VENV)/.demo $(VENV)/.interop
	$(BIN)/pip install --quiet vit-keras opencv-python-headless
	touch $@
