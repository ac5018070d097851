PYTHON ?= python3
VENV ?= .venv
# PyTorch's default build for Linux brings several gigabytes of CUDA; this release has a CPU build
# where the package index offers one.
TORCH ?= torch

BIN := $(VENV)/bin
# Keras is what setup.cfg asks for; the others are the oldest that were tried with it and pass. (JAX
# 0.4.38 now and then gives NaN for a gradient in float16 on CPUs.)
MINIMUM := keras==3.12.0 numpy==1.26.0 scipy==1.12.0 h5py==3.10.0 jax==0.6.2
PYTEST := $(BIN)/python -m pytest
# Two processes take one test file after the other. The end of one process is the end of all: with
# another in its place, the tests of its file would be waited for, and never run. Two folders have
# targets of their own: only to import what their tests need takes seconds.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 \
	--ignore tests/fuzz --ignore tests/interop
# Marks of tests that have targets of their own, as in setup.cfg.
NO_OTHERS := not large and not interop and not engines and not examples and not processes and not browser and not demo and not fuzz
export TF_CPP_MIN_LOG_LEVEL ?= 3
# JAX spends its time here on compiling small things: they are kept for the next process, and LLVM
# does not make them faster.
export JAX_COMPILATION_CACHE_DIR ?= $(abspath $(VENV))/jax-cache
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES ?= -1
test-jax test-processes-jax test-minimum: export XLA_FLAGS ?= --xla_backend_optimization_level=0

.PHONY: demo test test-slow fuzz test-backends test-jax test-torch test-processes test-processes-jax test-interop test-engines test-browser test-no-tensorflow test-minimum test-examples test-large test-demo lint docs site dist matrix extras audit bench clean

# The main job, end to end, on data that needs no download: about 3 minutes.
demo: $(VENV)/.demo
	$(BIN)/keras-vit quickstart

# Times are those of 2 cores with nothing else to do, without the installation.

# The default suite, on the TensorFlow backend: 8 minutes.
test: $(VENV)/.test
	$(PYTEST) $(PARALLEL)

# Tests of a second and more: trainings, exports, commands from end to end: half an hour.
test-slow: $(VENV)/.test
	$(PYTEST) $(PARALLEL) -m "slow and $(NO_OTHERS)"

# 10,000 damaged and malicious files: half a minute; FUZZ_CASES=100000 takes 4 minutes.
fuzz: $(VENV)/.test
	$(PYTEST) -n 2 -m fuzz tests/fuzz

# The default suite on the other backends, without the tests whose `backends` mark says why not and
# without the examples of docstrings: 6 minutes and 2.
SUITE := tests
test-jax: $(VENV)/.backends
	KERAS_BACKEND=jax $(PYTEST) $(PARALLEL) $(SUITE)

test-torch: $(VENV)/.backends
	KERAS_BACKEND=torch $(PYTEST) $(PARALLEL) $(SUITE)

# The same with the slow tests and the examples: 25 minutes.
test-backends: SUITE := -m "$(NO_OTHERS)"
test-backends: test-jax test-torch test-processes test-processes-jax

# Several devices: 1 minute.
test-processes: $(VENV)/.backends
	$(PYTEST) -n 2 -m processes

# Several devices and several processes: 3 minutes.
test-processes-jax: $(VENV)/.backends
	KERAS_BACKEND=jax $(PYTEST) -n 2 -m processes

# Checkpoint files of and for the real transformers, timm and keras-hub, and their preprocessing;
# models other than ViT on the three backends; training as by the original: 6 minutes.
test-interop: $(VENV)/.interop $(VENV)-transformers4/.installed
	$(PYTEST) -m interop tests/interop
	for backend in jax torch; do \
		KERAS_BACKEND=$$backend $(PYTEST) -m interop tests/interop/*_towers.py tests/interop/dense/*_towers.py || exit; done

# Predictions on Ray and on Spark, which needs Java: 2 minutes.
test-engines: $(VENV)/.engines
	$(PYTEST) -m engines tests/distributed

# The main job again, with a check of its accuracies: 2 to 4 minutes.
test-demo: $(VENV)/.test
	$(PYTEST) -s -m demo tests/cli/test_quickstart.py

# Pages in a real browser: 20 seconds. Needs chromium and chromedriver of the operating system.
test-browser: $(VENV)/.browser
	$(PYTEST) -m browser tests/inspection

# The installed package in an environment that has no TensorFlow at all: 1 minute.
test-no-tensorflow:
	$(PYTHON) -m venv $(VENV)-jax
	$(VENV)-jax/bin/pip install --quiet keras jax scipy filelock lazy_loader safetensors tqdm wrapt pytest
	$(VENV)-jax/bin/pip install --quiet --no-deps .
	KERAS_BACKEND=jax $(VENV)-jax/bin/pytest --noconftest -c /dev/null --rootdir .ci \
		--import-mode importlib --disable-warnings -p no:cacheprovider .ci/test_without_tensorflow.py

# Layers and models with the oldest versions that are supported, on Python 3.11: 2 minutes.
test-minimum:
	$(PYTHON) -m venv $(VENV)-minimum
	$(VENV)-minimum/bin/pip install --quiet $(MINIMUM) filelock lazy_loader safetensors wrapt pytest-xdist hypothesis
	KERAS_BACKEND=jax $(VENV)-minimum/bin/python -m pytest $(PARALLEL) -m "$(NO_OTHERS)" tests/layers keras_vit/layers keras_vit/models \
		tests/models/test_vit.py tests/models/test_freezing.py tests/models/test_surgery.py

# The examples, the Python of the pages, and commands from end to end: 5 minutes.
test-examples: $(VENV)/.test
	$(PYTEST) -n 2 -m examples tests

# Models of several gigabytes, every recipe, every combination of which the other targets test a
# part, and runs and exports that are killed again and again: about an hour.
test-large: $(VENV)/.backends
	$(PYTEST) -n 2 -m large
	KERAS_BACKEND=jax $(PYTEST) -n 2 -m large tests/training/test_distribution.py tests/evaluation/test_distributed_evaluation.py

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The tables of models and benchmarks in README.md and docs/.
docs: $(VENV)/.test
	$(BIN)/python docs/tables.py

# The web site, in site/: 1 minute. `mkdocs serve` shows it while you write.
site: $(VENV)/.site
	$(BIN)/mkdocs build --strict

# The wheel and the source distribution, in dist/: 1 minute.
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

# The supported versions of Python, Keras and the backends: half an hour. Needs Python 3.11 to 3.13.
matrix: $(VENV)/.nox
	$(BIN)/nox --error-on-missing-interpreters --session matrix

# The wheel, with each extra alone: half an hour. The one for Spark needs Java.
extras: $(VENV)/.nox dist
	$(BIN)/nox --session extras

# Known vulnerabilities of the dependencies, and their licenses.
audit: $(VENV)/.audit
	-$(BIN)/pip-audit --local --skip-editable
	$(BIN)/pip-licenses --from=mixed --order=license

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/import_time.py
	for model in ViT_B16 ViT_L16; do $(BIN)/python benchmarks/start_up.py --model $$model || exit; done
	$(BIN)/python benchmarks/loading.py
	$(BIN)/python benchmarks/loading.py --variant ViT_L16 --runs 3
	$(BIN)/python benchmarks/input_pipeline.py
	$(BIN)/python benchmarks/augmentation.py
	for backend in tensorflow jax torch; do for dtype in float32 mixed_bfloat16; do \
		$(BIN)/python benchmarks/throughput.py --backend $$backend --dtype $$dtype || exit; done; done
	for backend in tensorflow torch; do \
		$(BIN)/python benchmarks/throughput.py --model BiT_R50x1 --backend $$backend || exit; done
	$(BIN)/python benchmarks/throughput.py --model R50_B16 --backend torch
	$(BIN)/python benchmarks/operations.py
	$(BIN)/python benchmarks/run_overhead.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/accelerator.py
	$(BIN)/python benchmarks/pretraining.py
	$(BIN)/python benchmarks/fewshot.py
	$(BIN)/python benchmarks/evaluation.py
	for model in ViT_B16 R50_B16 BiT_R50x1; do $(BIN)/python benchmarks/serving.py --model $$model || exit; done
	$(BIN)/python benchmarks/requests_under_load.py

clean:
	rm -rf $(VENV) .nox $(VENV)-jax $(VENV)-minimum $(VENV)-transformers4 build dist site *.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.nox: $(BIN)/python
	$(BIN)/pip install --quiet nox
	touch $@

$(VENV)/.demo: $(BIN)/python setup.cfg
	$(BIN)/pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.test: $(BIN)/python setup.cfg
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $@

$(VENV)/.backends: $(VENV)/.test
	$(BIN)/pip install --quiet '$(TORCH)' jax optax
	touch $@

# torchvision has no build for CPUs alone, and cannot be imported as it is: it has a folder of its own.
$(VENV)/.interop: $(VENV)/.backends
	$(BIN)/pip install --quiet transformers keras-hub pyyaml peft msgpack
	$(BIN)/pip install --quiet --no-deps timm flax
	$(BIN)/pip install --quiet 'vit-keras; python_version < "3.12"' opencv-python-headless
	$(BIN)/pip install --quiet --no-deps --upgrade --target $(VENV)/torchvision torchvision
	touch $@

$(VENV)/.engines: $(VENV)/.test
	$(BIN)/pip install --quiet --editable '.[ray,spark]'
	touch $@

# Version 5 has no TensorFlow.
$(VENV)-transformers4/.installed:
	$(PYTHON) -m venv $(VENV)-transformers4
	$(VENV)-transformers4/bin/pip install --quiet 'transformers<5' 'tensorflow<2.20' 'tf-keras<2.20' pillow
	touch $@

$(VENV)/.browser: $(VENV)/.test
	$(BIN)/pip install --quiet selenium
	touch $@

$(VENV)/.lint: $(VENV)/.test
	$(BIN)/pip install --quiet ruff==0.17.5 mypy
	touch $@

$(VENV)/.site: $(BIN)/python setup.cfg
	$(BIN)/pip install --quiet --editable '.[docs]'
	touch $@

$(VENV)/.dist: $(BIN)/python
	$(BIN)/pip install --quiet build twine
	touch $@

$(VENV)/.audit: $(VENV)/.demo
	$(BIN)/pip install --quiet pip-audit pip-licenses
	touch $@

$(VENV)/.bench: $(VENV)/.demo $(VENV)/.interop
	$(BIN)/pip install --quiet vit-keras opencv-python-headless zeromodels
	touch $@
