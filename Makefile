# Two commands do everything on a machine that has Python 3.11 and make:
#   make demo    make the environment, install, run the demo simulation, leave a picture
#   make test    install what the tests need and run them
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Blender's own Python brings numpy 1.26, so its environment is a second one.
BLENDER_VENV := .venv-blender
BLENDER_BIN := $(BLENDER_VENV)/bin
# Blender 5.2 LTS brings Python 3.13.
NEWEST_VENV := .venv-newest
NEWEST_BIN := $(NEWEST_VENV)/bin
# Tests start Python hundreds of times; without its compiled files each start takes a second more.
unexport PYTHONDONTWRITEBYTECODE
PIP := -m pip install --quiet --disable-pip-version-check

.PHONY: demo test warm wheel lint types contract unit mpi live numpy1 newest blender test-blender houdini validate bench reference gallery clean

demo: $(VENV)/.installed
	$(BIN)/wtloki example hair_in_wind --frames 40 --output output/hair_in_wind --overwrite
	$(BIN)/wtloki preview output/hair_in_wind --output output/hair_in_wind.png
	@echo "The picture is output/hair_in_wind.png"

# First the kernels, by all cores, so that no two parts compile the same one; then parts that leave
# cores idle at times, three at once. Ranks wait busily for each other, so they have the cores alone.
test: lint warm
	$(MAKE) --jobs=3 --output-sync=target unit live test-blender types contract numpy1
	$(MAKE) mpi

warm: $(VENV)/.installed
	$(BIN)/wtloki warm

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

unit: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not slow" tests/unit

contract: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not slow" tests/contract tests/skeleton tests/verification

mpi: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not slow" tests/mpi

live: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not slow" tests/live tests/houdini

# The units once more with the numpy that Blender needs, and the parts that use Blender's openvdb.
numpy1: $(BLENDER_VENV)/.installed
	$(BLENDER_BIN)/python -m pytest -m "not slow and not mpi and not compiles" tests/unit

# The units, and the tests in Blender 5.2 LTS, with the newest Python that is here: NEWEST names it.
NEWEST ?= python3.13
newest: $(NEWEST_VENV)/.installed
	$(NEWEST_BIN)/python -m pytest -m "not slow and not mpi and not compiles" tests/unit
	$(NEWEST_BIN)/python -m pytest -m "not slow" tests/blender

# The Blender extension as zips in dist/, and the tests that run in the real program.
blender: $(VENV)/.installed-dev
	$(BIN)/python bridges/blender/build_extension.py --output dist

test-blender: $(BLENDER_VENV)/.installed $(VENV)/.installed-dev
	$(BIN)/python bridges/blender/build_extension.py --output dist --platform linux-x64 --python 3.11
	$(BLENDER_BIN)/python -m pytest -m "not slow" tests/blender tests/houdini/test_vdbs.py

# Loki as one file in dist/, for every system: pip install "dist/loki_vfx-0.1.0-py3-none-any.whl[mpi,preview]"
wheel: $(VENV)/.installed-dev
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

# The Houdini package as a folder and a zip in dist/; ends with an error if a node type is not valid.
houdini: $(VENV)/.installed-dev
	$(BIN)/python bridges/houdini/build_package.py --output dist

validate: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow
	$(BIN)/wtloki validate

bench: $(VENV)/.installed-dev
	$(BIN)/wtloki bench

reference: $(VENV)/.installed
	$(BIN)/wtloki reference --output docs/reference

# Simulates the scenes of examples/ and renders them with Cycles into docs/images/gallery; takes hours.
gallery: $(BLENDER_VENV)/.installed
	$(BLENDER_BIN)/python -m loki_vfx.bridges.blender.gallery

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python $(PIP) --editable ".[mpi,preview]"
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python $(PIP) --editable ".[mpi,preview,usd,dev]"
	touch $@

$(BLENDER_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(BLENDER_VENV)
	$(BLENDER_BIN)/python $(PIP) "numpy<2" --editable ".[mpi,blender,usd,gallery,test]"
	touch $@

$(NEWEST_VENV)/.installed: pyproject.toml
	$(NEWEST) -m venv $(NEWEST_VENV)
	$(NEWEST_BIN)/python $(PIP) --editable ".[mpi,preview,usd,gallery,test]" "bpy>=5.2,<5.3"
	touch $@

clean:
	rm -rf $(VENV) $(BLENDER_VENV) $(NEWEST_VENV) build dist *.egg-info output
