# The thin front; CMake does the work (see CMakePresets.json).
#   make build    the program, build/release/dew        make demo     learn the King James Bible
#   make test     build everything and test it          make scaling  one run on eight devices
#   make format   rewrite the sources in our format     make install  PREFIX=/usr/local DESTDIR=
#   make check    the quick checks of .ci/run

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
BUILD := build/release

.PHONY: build test demo scaling install format check clean
build:
	@tools/install_deps.sh build
	@test -f $(BUILD)/build.ninja || cmake --preset release -DDEW_BUILD_TESTS=OFF
	@cmake --build $(BUILD) --target dew_program -j $(JOBS)

test:
	@tools/install_deps.sh test
	@cmake --preset release -DDEW_BUILD_TESTS=ON -DDEW_BUILD_BENCH=ON
	@cmake --build $(BUILD) -j $(JOBS)
	@tools/run_tests $(BUILD) $(if $(TESTS),-R '$(TESTS)')

demo:
	@tools/install_deps.sh demo
	@$(MAKE) --no-print-directory build
	@tools/demo.sh

scaling: build
	@cmake --build $(BUILD) --target example_scaling -j $(JOBS)
	@$(BUILD)/examples/scaling

install: build
	@cmake --build $(BUILD) --target dew -j $(JOBS)
	@cmake --install $(BUILD) --prefix $(PREFIX)

format:
	@tools/sources | xargs clang-format-16 -i

check:
	@tools/sources | xargs clang-format-16 --dry-run --Werror
	@tools/check_layers
	@tools/check_headers

clean:
	rm -rf build
