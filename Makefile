# The short names for what people do here; the work is in scripts/ and CMakeLists.txt.
.PHONY: help build install demo check soak bench format clean
PREFIX ?= /usr/local

help:
	@echo 'make build    install what is missing, compile build/pawl'
	@echo 'make install  libpawl_ckpt.so, libpawl_plan.so, libpawl_train.so, their headers and build/pawl under PREFIX (default /usr/local)'
	@echo 'make demo     train on several workers, kill some, resume; TEXT=/path/of/a/file names the text'
	@echo 'make check    every check and test; STAGES="lengths tsan" runs only some'
	@echo 'make soak     power cuts in a virtual machine, fresh seeds, fuzzing: MINUTES=60 KINDS="power replay"'
	@echo 'make bench    measure, beside the peers'
	@echo 'make format   lay out the C code'
	@echo 'make clean    remove build/'

build:
	@scripts/setup build
	@scripts/build build

install: build
	@scripts/install '$(PREFIX)'

demo:
	@scripts/setup demo
	@scripts/build build
	@scripts/demo

check:
	@scripts/setup check
	@scripts/check $(STAGES)

soak:
	@scripts/setup soak
	@scripts/soak $(MINUTES) $(KINDS)

bench:
	@scripts/setup check
	@scripts/build build
	@scripts/bench $(BENCH)

format:
	@scripts/setup check
	@scripts/format

clean:
	rm -rf build
