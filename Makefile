# What a developer runs each day. `.venv/bin/nox --list` shows everything else; it is in noxfile.py.
# Each target first installs what it needs into VENV.
PYTHON ?= python3
VENV ?= .venv

.PHONY: demo test lint site real bench clean

# The main job, end to end, on data that needs no download: 2 minutes.
demo: $(VENV)/bin/nox
	$(VENV)/bin/nox --session demo

# The default tests, on TensorFlow: 2 minutes on 2 cores.
test: $(VENV)/bin/nox
	$(VENV)/bin/nox --session test

# The linter, the format and the types of the examples.
lint: $(VENV)/bin/nox
	$(VENV)/bin/nox --session lint

# The web site, in site/; `.venv/bin/mkdocs serve` shows it while you write.
site: $(VENV)/bin/nox
	$(VENV)/bin/nox --session site

# Write a trained DINOv2 to build/real, and compare it with ONNX Runtime in each precision: 5 minutes.
real: $(VENV)/bin/nox
	$(VENV)/bin/nox --session real

# Speed and memory, next to other packages: hours.
bench: $(VENV)/bin/nox
	$(VENV)/bin/nox --session bench

clean:
	rm -rf $(VENV) $(VENV)-transformers4 .nox build dist site *.egg-info

$(VENV)/bin/nox:
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet nox
