# One name a job. PYTHON is what the virtual environment is made of.
PYTHON ?= python3
PROFILE ?= cpu
GPU_TIME ?= 13m
BIN := .venv/bin

.PHONY: book test screenshots reproduce gpu lab lint clean

book: .venv/book ## set up, execute every chapter, render the book
	$(BIN)/fqk book

test: .venv/test ## all tests
	$(BIN)/python -m pytest

screenshots: .venv/test ## every page of the built book, light, dark and on a phone: _build/screenshots
	$(BIN)/python tests/screenshots.py

reproduce: .venv/book ## every run and every verdict again, beside the committed records: PROFILE=smoke, cpu or paper
	$(BIN)/fqk reproduce --profile $(PROFILE) --out _build/reproduced

gpu: .venv/book ## the paper profile's most telling variants, several at once on one card; goes on where it stopped
	timeout $(GPU_TIME) $(BIN)/fqk sweep base-dot multifourier-qk fourier-qk random-qk morlet-xcorr \
	  causal-morlet phase-random --profile paper --device cuda --workers 4

lab: .venv/lab ## the notebooks in JupyterLab
	$(BIN)/jupyter lab notebooks

lint: .venv/test ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean: ## everything that make built
	rm -rf .venv _build

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/book: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e .
	touch $@

.venv/test .venv/lab: .venv/%: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e ".[$*]"
	touch $@
