# The commands of the project. Each does the set-up it needs; a fresh clone, Python >= 3.11 and a C++20 compiler are enough.
#
#   make quickstart   sample corpus -> tokenizer -> token shards -> small language model -> story -> report, in a new
#                     virtual environment
#   make test         C++ tests, then Python tests; tests of pages need Chromium and tests of failing system calls need strace
#                     (Debian packages, installed as root), and are skipped without them
#   make check        ruff, clang-format, plain words, import contracts, mypy, pyright, known vulnerabilities of the pinned
#                     packages (with a network); then C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
#   make docs         build the documentation site into site/
#   make check-docs   build the site and look at every page in Chromium: 390 and 1,280 px, light and dark
#   make screenshots  make sample artefacts, and take the pictures of docs/view.md in Chromium
#   make plots        draw the pictures of README and docs from the committed results and from the code
#   make bench        gristmill bench: this machine, beside the rivals that pip can install
#   make format       format the Python and C++ sources
#   make aarch64      cross-compile the core and run its tests under qemu (Debian packages, as root)
#   make wheel        build the sdist and manylinux wheels into dist/, and test each in an empty virtual environment
#   make transformers4  test the exported folder with transformers 4.57, in addition to the version of `make test`
#   make check-gpu   on a machine with a GPU: its tests, recounts and compute-sanitizer; then benchmarks/bench_gpu.py and
#                     benchmarks/check_lm_gpu.py
#   make faults       inject all faults of docs/reliability.md, and write its table
#   make soak         mixed work for MINUTES=30, then kill every long command KILLS=50 times at random: docs/reliability.md
#   make sanitize     C++ and Python tests under AddressSanitizer and UndefinedBehaviorSanitizer, and those with threads
#                     under ThreadSanitizer
#   make tsan         C++ tests under ThreadSanitizer
#   make fuzz         run the fuzz targets under ASan + UBSan: MINUTES=10 for all of them, TARGET=scan for one,
#                     SANITIZE= for more executions without sanitizers (Clang from Debian packages, as root)
#   make fuzz-files   read mutated files of every kind that Python parses: FILES=100000 of them, KIND=words for one kind
#   make clean        remove everything that these commands made

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV ?= .venv
JOBS ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

cpp_sources := $(shell find cpp bindings benchmarks src/gristmill/gpu tests/gpu -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null)
python_sources := $(shell find src/gristmill -name '*.py' -o -name '*.pyi' -o -path '*/view/static/*' -o -name '*.html' -o -name py.typed)
# Scripts that mypy --strict and pyright check: one uses every public name, the other makes mistakes on purpose.
typed_scripts := tests/typing/every_public_name.py tests/typing/mistakes.py

.PHONY: quickstart test test-cpp test-python check check-gpu check-static check-sanitized docs check-docs screenshots plots bench format aarch64 wheel transformers4 tsan sanitize sanitize-python fuzz fuzz-files faults soak clean

quickstart: $(VENV)/.installed
	@mkdir -p quickstart
	$(BIN)/gristmill sample-corpus -o quickstart/stories.txt --size 50MB --seed 0 --overwrite
	$(BIN)/gristmill train-tokenizer quickstart/stories.txt --vocab-size 4000 -o quickstart/tokenizer.json --overwrite --profile
	$(BIN)/gristmill inspect quickstart/tokenizer.json
	$(BIN)/gristmill encode quickstart/stories.txt -t quickstart/tokenizer.json -o quickstart/shards --val-fraction 0.01 --overwrite
	$(BIN)/gristmill verify quickstart/shards
	$(BIN)/gristmill inspect quickstart/shards
	$(BIN)/gristmill train-model quickstart/shards -o quickstart/run --preset quickstart --overwrite
	$(BIN)/gristmill generate quickstart/run --prompt "Once upon a time" --max-tokens 300 --temperature 0.6 --seed 0
	$(BIN)/gristmill report quickstart/run
	@echo
	@echo "The model wrote the story above. quickstart/run/report.html shows how it learned."
	@echo "To try the tokenizer and the model in a browser, run \`$(BIN)/gristmill view quickstart --open\`."
	@echo "The program is $(BIN)/gristmill. After \`source $(BIN)/activate\`, run it as \`gristmill\`. Next: docs/tutorial.md"

test: test-cpp test-python

test-cpp: $(VENV)/.tools
	$(BIN)/cmake -S . -B build/tests -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
		-DGRISTMILL_BUILD_PYTHON=OFF -DGRISTMILL_BUILD_TESTS=ON
	$(BIN)/cmake --build build/tests -j $(JOBS)
	$(BIN)/ctest --test-dir build/tests -j $(JOBS) --output-on-failure

# CHROMIUM installs the browser, or fails with a message where that is not possible. STRACE does so with strace, by which
# tests let chosen system calls fail.
CHROMIUM := { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null || tools/install_debian.sh chromium
STRACE := command -v strace >/dev/null || tools/install_debian.sh strace

test-python: $(VENV)/.installed-test
	@$(CHROMIUM) || echo "Continuing without Chromium: the tests of pages in a browser are skipped." >&2
	@$(STRACE) || echo "Continuing without strace: the tests of failing system calls are skipped." >&2
	$(BIN)/python -m pytest -n $(JOBS)

check: check-static check-sanitized

# Runs in seconds, so it comes before the sanitizers, which take minutes.
check-static: $(VENV)/.installed-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(cpp_sources)
	$(BIN)/python tools/plain_words.py
	PYTHONPATH=src $(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	MYPYPATH=src $(BIN)/mypy --config-file= --strict --follow-imports=silent $(typed_scripts)
	$(BIN)/pyright --project tests/typing --pythonpath $(BIN)/python
	$(BIN)/python tools/audit.py

check-sanitized: $(VENV)/.tools
	$(BIN)/cmake -S . -B build/sanitized -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DGRISTMILL_BUILD_PYTHON=OFF -DGRISTMILL_BUILD_TESTS=ON -DGRISTMILL_SANITIZE=address,undefined
	$(BIN)/cmake --build build/sanitized -j $(JOBS)
	$(BIN)/ctest --test-dir build/sanitized -j $(JOBS) --output-on-failure

check-gpu: $(VENV)/.installed-test
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) --no-build-isolation '.[gpu]'
	$(BIN)/python tools/check_gpu.py
	$(BIN)/python benchmarks/bench_gpu.py
	$(BIN)/python benchmarks/check_lm_gpu.py

tsan: $(VENV)/.tools
	$(BIN)/cmake -S . -B build/tsan -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DGRISTMILL_BUILD_PYTHON=OFF -DGRISTMILL_BUILD_TESTS=ON -DGRISTMILL_SANITIZE=thread
	$(BIN)/cmake --build build/tsan -j $(JOBS)
	$(BIN)/ctest --test-dir build/tsan -j $(JOBS) --output-on-failure

sanitize: check-sanitized tsan sanitize-python

# The sanitized `_core` is built in the folder of the C++ tests, which have compiled most of it.
sanitize-python: $(VENV)/.installed-test
	$(BIN)/cmake -S . -B build/sanitized -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DPython_EXECUTABLE=$(abspath $(BIN))/python \
		-DGRISTMILL_BUILD_PYTHON=ON -DGRISTMILL_BUILD_TESTS=ON -DGRISTMILL_SANITIZE=address,undefined
	$(BIN)/cmake --build build/sanitized --target _core -j $(JOBS)
	$(BIN)/python tools/sanitize.py --build build/sanitized --sanitizer address --jobs $(JOBS)
	$(BIN)/cmake -S . -B build/tsan -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DPython_EXECUTABLE=$(abspath $(BIN))/python \
		-DGRISTMILL_BUILD_PYTHON=ON -DGRISTMILL_BUILD_TESTS=ON -DGRISTMILL_SANITIZE=thread
	$(BIN)/cmake --build build/tsan --target _core -j $(JOBS)
	$(BIN)/python tools/sanitize.py --build build/tsan --sanitizer thread

faults: $(VENV)/.installed-test
	@$(STRACE)
	$(BIN)/python -m pytest -n $(JOBS) tests/faults/rows --record-rows
	$(BIN)/python tools/reliability.py

KILLS ?= 50

soak: MINUTES = 30
soak: $(VENV)/.installed-test
	$(BIN)/python tools/soak.py --minutes $(MINUTES)
	$(BIN)/python tools/kill_matrix.py --kills $(KILLS)

MINUTES ?= 10
TARGET ?=
SANITIZE ?= address,undefined
FUZZ_CXX ?= clang++-19
FUZZ_BUILD := $(if $(SANITIZE),sanitized,fast)

fuzz: $(VENV)/.tools
	@$(FUZZ_CXX) -print-resource-dir 2>/dev/null | xargs -r -I{} find {} -name 'libclang_rt.fuzzer*' | grep -q . || \
		tools/install_debian.sh clang-19 libclang-rt-19-dev
	$(BIN)/cmake -S . -B build/fuzz/$(FUZZ_BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DCMAKE_CXX_COMPILER=$(FUZZ_CXX) -DGRISTMILL_BUILD_PYTHON=OFF -DGRISTMILL_BUILD_FUZZ=ON -DGRISTMILL_SANITIZE=$(SANITIZE)
	$(BIN)/cmake --build build/fuzz/$(FUZZ_BUILD) -j $(JOBS)
	$(BIN)/python tools/fuzz.py --build $(FUZZ_BUILD) --minutes $(MINUTES) $(addprefix --target ,$(TARGET))

FILES ?= 100000
SEED ?= 0
KIND ?=

fuzz-files: $(VENV)/.installed-test
	$(BIN)/python tools/fuzz_files.py --files $(FILES) --seed $(SEED) $(addprefix --kind ,$(KIND))

docs: $(VENV)/.installed-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Built the documentation site: open site/index.html"

check-docs: docs
	@$(CHROMIUM)
	$(BIN)/python tools/look_at_site.py site

screenshots: $(VENV)/.installed-test
	@$(CHROMIUM)
	$(BIN)/python tools/screenshots.py

plots: $(VENV)/.installed
	$(BIN)/python tools/draw_pictures.py

# An action that fails does not stop the next ones; Ctrl-C (130) and SIGTERM (143) do. The exit code is the largest one.
bench: $(VENV)/.installed
	$(BIN)/python tools/install_rivals.py --constraint constraints.txt
	@worst=0; for action in train encode pipeline scaling ablation; do \
		echo "$(BIN)/gristmill bench $$action"; \
		$(BIN)/gristmill bench $$action; code=$$?; \
		case $$code in 130|143) exit $$code;; esac; \
		[ $$code -le $$worst ] || worst=$$code; \
	done; exit $$worst

format: $(VENV)/.installed-check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(cpp_sources)

aarch64: $(VENV)/.tools
	@command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null || tools/install_debian.sh g++-aarch64-linux-gnu qemu-user
	$(BIN)/cmake -S . -B build/aarch64 -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
		-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
		"-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu" \
		-DGRISTMILL_BUILD_PYTHON=OFF -DGRISTMILL_BUILD_TESTS=ON
	$(BIN)/cmake --build build/aarch64 -j $(JOBS)
	$(BIN)/ctest --test-dir build/aarch64 --output-on-failure

wheel: $(VENV)/.tools
	$(PIP) --group release
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python tools/build_wheels.py

transformers4: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target build/transformers4 'transformers==4.57.6'
	PYTHONPATH=$(abspath build/transformers4) $(BIN)/python -m pytest -q tests/compat/test_compat_transformers_folder.py

clean:
	rm -rf build dist quickstart site $(VENV)

# The build tools, at the versions in constraints.txt. pip can install all of them except the compiler.
$(VENV)/.tools: constraints.txt
	@[ -n "$(PYTHON)" ] || { echo "Gristmill needs Python 3.11 or newer, and none was found. Install Python, or pass its path: make PYTHON=/path/to/python3" >&2; exit 1; }
	@command -v $${CXX:-c++} >/dev/null || command -v g++ >/dev/null || tools/install_debian.sh g++
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || tools/install_debian.sh python3-venv
	"$(PYTHON)" -m venv $(VENV)
	$(PIP) 'pip>=25.1'
	$(PIP) scikit-build-core nanobind cmake ninja
	@touch $@

$(VENV)/.installed: $(VENV)/.tools pyproject.toml CMakeLists.txt $(cpp_sources) $(python_sources)
	@echo "Building Gristmill and downloading torch: takes a few minutes"
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) --no-build-isolation '.[report,train,view]'
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) --no-build-isolation '.[test]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) --no-build-isolation '.[docs]'
	@touch $@

$(VENV)/.installed-check: $(VENV)/.tools pyproject.toml
	$(PIP) ruff mypy 'pyright[nodejs]' clang-format import-linter numpy msgspec
	@$(PIP) pip-audit || echo "Continuing without pip-audit: known vulnerabilities are not looked up." >&2
	@touch $@
