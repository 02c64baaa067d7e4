# The door. Each verb is one line that calls a playbook or a module. ANSIBLE_INVENTORY switches every verb from the testbed
# to a lab; ARGS= goes through to the command behind; MATRIX= names the matrix.
SHELL := /bin/sh
MATRIX ?= quick
VARIANT ?= cpu
STACK ?=
ARGS ?=
ONLY ?=
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg

in = env="$$(requirements/bootstrap $(1))" && PATH="$$env/bin:$$PATH" && export PATH &&

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo unit test test-wide testbed testbed-down provision verify plan matrix watch conformance report compare bench gpu-check lock lint clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

demo: ## bring up the testbed, provision and verify it, run the quick matrix, write the report
	@$(MAKE) --no-print-directory testbed provision verify
	@$(MAKE) --no-print-directory matrix report MATRIX=quick

unit: ## the fast tests that need no nodes: about a minute (ONLY=? lists the parts)
	@$(call in,test) python -m tests.run unit "$(ONLY)"

test: ## everything that proves the project, from lint to the whole loop (ONLY=? lists the parts, ONLY=part runs some)
	@$(call in,test) python -m tests.run test "$(ONLY)"

test-wide: ## the longer proofs: faults of nodes and disks, other engines and inventories, 50 kills (ONLY= as for test)
	@$(call in,test) python -m tests.run test-wide "$(ONLY)"

testbed: ## three nodes on this machine (TESTBED=name TESTBED_PREFIX=198.18.n TESTBED_LINK_RATE=1gbit TESTBED_RELEASE=bookworm)
	@$(call in,controller) ansible-playbook playbooks/testbed.yml $(ARGS)

testbed-down: ## remove the testbed, all but its caches
	@$(call in,controller) ansible-playbook playbooks/testbed_down.yml $(ARGS)

provision: ## set up the cluster of the inventory (determined_packages=DIR where its release cannot be reached)
	@$(call in,controller) ansible-playbook playbooks/provision.yml $(if $(determined_packages),-e '{"determined_packages": "$(determined_packages)"}') $(ARGS)

verify: ## prove the state of the nodes (testinfra); what was found is kept in results/verify, as JUnit's XML
	@$(call in,controller) python -m pytest tests/nodes --verbose --junitxml="results/verify/$$(date -u +%Y%m%dT%H%M%SZ).xml" $(ARGS)

conformance: ## what every stack must do: equal weights, recorded faults, nothing left running (STACK=name)
	@$(call in,controller) python -m pytest tests/conformance --stack "$(STACK)" --verbose --junitxml="results/conformance/$(STACK).xml" $(ARGS)

plan: ## show the runs of a matrix, and which cannot be run here
	@$(call in,controller) python -m experiments plan "$(MATRIX)" $(ARGS)

matrix: ## run a matrix, or resume it
	@$(call in,controller) python -m experiments run "$(MATRIX)" $(ARGS)

watch: ## show the matrix that runs, live, from another terminal (MATRIX= for a certain one)
	@$(call in,controller) python -m experiments watch $(if $(filter file,$(origin MATRIX)),,"$(MATRIX)") $(ARGS)

report: ## write the report of a matrix's newest campaign
	@$(call in,controller) python -m experiments report "$(MATRIX)" $(ARGS)

compare: ## set two campaigns side by side (A=results/<matrix>/<campaign> B=...)
	@$(call in,controller) python -m experiments compare "$(A)" "$(B)" $(ARGS)

bench: ## what recording costs (DATA=folder of a prepared data set)
	@$(call in,test) python -m tests.benchmarks.recording --data "$(DATA)" $(ARGS)

gpu-check: ## prove on this machine's own GPU what needs one (skipped, with the reason, where there is none)
	@tests/gpu/check "$(DATA)"

lint: ## lint everything
	@$(call in,test) tests/lint

lock: ## resolve the locked environment anew (VARIANT=cpu, cu126 or cu130; needs uv)
	@roles/python_env/files/locks/make-locks $(VARIANT)

clean: ## remove the testbed with its caches, and this machine's virtual environments of it
	@$(call in,controller) ansible-playbook playbooks/testbed_down.yml -e testbed_down_caches=true $(ARGS)
	@rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/trainbed"
