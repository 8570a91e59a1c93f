.PHONY: help demo test soak lint bench cluster image testbed-build clean

help:
	@echo "make demo    install Longboat into .venv and train on this machine"
	@echo "make test    install what the tests need and run them, lint included"
	@echo "make soak    the same with the long tests: faults, kill storms, every flavour of a cluster"
	@echo "make lint    ruff, mypy, import layers, unused code, rules of the tree, the launcher's grammar"
	@echo "make cluster start a real Kubernetes on this machine (testbed/README.md)"
	@echo "make image   IMAGE=NAME [UI_IMAGE=NAME]: images for longboat install, with docker, podman or buildah"
	@echo "make bench   measure against peers, write bench/results.json"
	@echo "make clean   remove .venv and everything built"

demo:
	@sh scripts/demo.sh

test:
	@sh scripts/test.sh

soak:
	@LONGBOAT_TEST_SOAK=1 sh scripts/test.sh

lint:
	@sh scripts/lint.sh

bench:
	@sh scripts/environment.sh dev && .venv/bin/python bench/run.py

cluster:
	@sh scripts/cluster.sh

image:
	@sh scripts/image.sh "$(IMAGE)" "$(UI_IMAGE)"

testbed-build:
	@sh scripts/environment.sh dev && .venv/bin/python -m testbed build

clean:
	rm -rf .venv build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
