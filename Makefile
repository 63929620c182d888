# make demo | test | sweep | same-code | lint | wheel | clean. Each sets itself up: Python >= 3.11 and make are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT ?= out/demo
CHECKED := mlagen schedules templates tests examples benchmarks setup.py

DEMO_PROBLEM := --set num_heads=8 --set num_kv_heads=2 --set depth=128 --set mask=causal

BASE ?= HEAD

.PHONY: demo test sweep audited same-code lint wheel clean

demo: $(READY)
	@$(BIN)/mlagen build mha_prefill_v2 $(DEMO_PROBLEM) -o $(OUT)
	@echo
	@$(BIN)/mlagen verify $(OUT)

# The emulators' engines are compiled once and cached; otherwise each test process would do it. So
# are the sources: with PYTHONDONTWRITEBYTECODE each of the commands that tests start would.
test: $(READY)
	@$(BIN)/python -m compileall -q mlagen schedules
	@$(BIN)/mlagen verify mla_decode_merge_sm90 --set num_heads=1 >/dev/null & hopper=$$!; \
		$(BIN)/mlagen verify mha_prefill_v2 --set num_heads=1 --set num_kv_heads=1 \
		--shape seq_len=32 >/dev/null && wait $$hopper
	$(BIN)/python -m pytest -q -n 2 --dist worksteal $(TESTS)

# Forms of all kernels: SAMPLE of them in all, SHARD i/n of these; another SEED draws others.
SAMPLE ?= 2000
SHARD ?= 0/1
SEED ?= 0
sweep: $(READY)
	$(BIN)/python tests/sweep/run.py -o out/sweep --sample $(SAMPLE) --shard $(SHARD) --seed $(SEED)

# The code of a fixed list of problems, here and at the revision BASE.
same-code: $(READY)
	$(BIN)/python tests/same_code/compare_code.py --base $(BASE)

# Kernels that others wrote, and ours: fetched, compiled, audited; PARTS of names choose some.
audited: $(READY)
	$(BIN)/python tests/audited/audit_list.py $(PARTS) --page docs/foreign_audit.md

lint: $(READY)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/mypy --follow-imports=silent tests/typed/usage.py

# Needs the build backend only, which pip fetches: no .venv. What a former build left would ship too.
wheel:
	@rm -rf build/lib
	@$(PYTHON) -m venv build/venv
	@build/venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .
	@ls -s --block-size=KiB dist/mlagen-*.whl

clean:
	rm -rf $(VENV) out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +

# Made again when the requirements change; an interrupted set-up leaves no stamp.
$(READY): pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than 3.11; run: make PYTHON=python3.11" >&2; exit 5; }
	@echo "setting up $(VENV): 1.4 GB of packages, one to three minutes; sizes of what is fetched:"
	@$(PYTHON) -m venv $(VENV)
	@rm -f $(VENV)/.failed; start=$$(date +%s); \
		{ $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off \
		-e '.[cpu,hip,dev]' || touch $(VENV)/.failed; } \
		| sed -n -u 's/^ *\(Downloading\|Using cached\) \([^ ]*\) (\([0-9.]* MB\)).*/  \3  \2/p'; \
		[ ! -e $(VENV)/.failed ] && echo "done in $$(( $$(date +%s) - start )) s"
	@touch $@
