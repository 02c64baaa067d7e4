# The front door: each target is one line that calls a playbook or a module. ANSIBLE_INVENTORY switches every target from the
# testbed to a lab; ARGS= is passed on to the command; MATRIX= names the matrix.
SHELL := /bin/sh
MATRIX ?= quick
VARIANT ?=
STACK ?=
ARGS ?=
LIBRARIES ?=
ONLY ?=
TESTBED_KIND ?= container
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
ifeq ($(TESTBED_KIND),vm)
ANSIBLE_INVENTORY ?= $(CURDIR)/inventory/vm
export ANSIBLE_INVENTORY
else ifneq ($(TESTBED_KIND),container)
$(error TESTBED_KIND is '$(TESTBED_KIND)', and must be container or vm)
endif

in = env="$$(requirements/bootstrap $(1))" && PATH="$$env/bin:$$PATH" && export PATH &&

detach = $(if $(filter-out 1,$(DETACH)),$(error DETACH is '$(DETACH)', and must be 1 or empty))$(if $(DETACH),--detach)
# As it was written: make would take $$TRAINBED_STATE for a variable of its own.
hook = $(if $(value HOOK),--at-end '$(subst ','\'',$(value HOOK))')

# Real packages of Determined, for tests: without them they take a stand-in.
packages = $(if $(value determined_packages),TRAINBED_DETERMINED_PACKAGES='$(subst ','\'',$(value determined_packages))')

# Before anything is installed; but where somebody may have accepted a fault of this machine, only the role knows.
accepts = $(findstring testbed_accepted_faults,$(ARGS))$(filter environment,$(origin ANSIBLE_INVENTORY))
carries = requirements/bootstrap check && $(if $(accepts),,python3 roles/testbed/files/this-machine check --kind $(TESTBED_KIND) &&)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo unit test test-wide inventory testbed testbed-down provision uninstall verify status conformance plan matrix watch campaigns history answer report compare export search bench gpu-check lint lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

demo: ## bring up the testbed, provision and verify it, run the quick matrix, write the report
	@requirements/bootstrap check && python3 roles/testbed/files/this-machine announce --kind $(TESTBED_KIND)
	@$(MAKE) --no-print-directory testbed provision verify
	@$(MAKE) --no-print-directory matrix report MATRIX=quick

unit: ## run the fast tests, which need no nodes: about a minute (ONLY='?' lists the parts)
	@$(call in,test) python -m tests.run unit "$(ONLY)"

test: ## run the standard tests, from lint to whole matrices (ONLY='?' lists the parts, ONLY=part,… runs some; determined_packages=DIR)
	@$(call in,test) $(packages) python -m tests.run test "$(ONLY)"

test-wide: ## run the longer tests: faults of nodes and disks, other engines and inventories, 50 kills (ONLY= and determined_packages= as for test)
	@$(call in,test) $(packages) python -m tests.run test-wide "$(ONLY)"

inventory: ## write an inventory for machines of your own; asks for what ARGS= leaves out (ARGS=--help lists the options)
	@$(call in,controller) python -m inventory.new $(ARGS)

testbed: ## make three nodes on this machine (TESTBED_KIND=container or vm, TESTBED=name TESTBED_PREFIX=198.18.n TESTBED_LINK_RATE=1gbit)
	@$(carries) $(call in,controller) ansible-playbook playbooks/testbed.yml $(ARGS)

testbed-down: ## remove the testbed except for its caches
	@$(call in,controller) ansible-playbook playbooks/testbed_down.yml $(ARGS)

provision: ## set up the cluster of the inventory (determined_packages=DIR takes its packages from there)
	@$(call in,controller) ansible-playbook playbooks/provision.yml $(if $(determined_packages),-e '{"determined_packages": "$(determined_packages)"}') $(ARGS)

uninstall: ## take a stack out of the cluster (STACK=name); keeps its data unless DATA=remove
	@$(call in,controller) ansible-playbook playbooks/uninstall.yml -e '{"uninstall_stack": "$(STACK)", "uninstall_data": "$(DATA)"}' $(ARGS)

verify: ## prove the state of the nodes (testinfra); the results are kept in results/verify as JUnit XML
	@$(call in,controller) python -m pytest tests/nodes --verbose --junitxml="results/verify/$$(date -u +%Y%m%dT%H%M%SZ).xml" $(ARGS)

status: ## show the cluster on one screen: nodes, lock, versions, GPUs, disks, clocks; changes nothing
	@$(call in,controller) python -m experiments status $(ARGS)

conformance: ## test what every stack (STACK=name) or workload (WORKLOAD=name or folder) must do
ifdef WORKLOAD
	@$(call in,test) python -m pytest tests/conformance/test_workload.py --workload "$(WORKLOAD)" $(if $(filter file,$(origin MATRIX)),,--matrix "$(MATRIX)") --verbose --junitxml="results/conformance/$(notdir $(WORKLOAD)).xml" $(ARGS)
else
	@$(call in,controller) python -m pytest tests/conformance/test_stack.py --stack "$(STACK)" --verbose --junitxml="results/conformance/$(STACK).xml" $(ARGS)
endif

plan: ## show the runs of a matrix, and which can't be made here
	@$(call in,controller) python -m experiments plan "$(MATRIX)" $(ARGS)

matrix: ## run a matrix, or go on with it (CAMPAIGN= names one; DETACH=1 goes on after logout; HOOK=command runs at its end)
	@$(call in,controller) python -m experiments run "$(MATRIX)" $(if $(CAMPAIGN),--campaign "$(CAMPAIGN)") $(detach) $(hook) $(ARGS)

watch: ## follow the running matrix live, from another terminal (MATRIX= chooses one of several)
	@$(call in,controller) python -m experiments watch $(if $(filter file,$(origin MATRIX)),,"$(MATRIX)") $(ARGS)

campaigns: ## list campaigns: how far they came, and why one does not match (MATRIX= chooses one matrix)
	@$(call in,controller) python -m experiments campaigns $(if $(filter file,$(origin MATRIX)),,"$(MATRIX)") $(ARGS)

history: ## show all campaigns of a matrix, cell by cell, and where times changed and with what (ARGS="--csv FILE" writes it, too)
	@$(call in,controller) python -m experiments history "$(MATRIX)" $(ARGS)

answer: ## set what the CAMPAIGNS="…" say of each suspect beside the dissertation's overheads (ARGS="--out FOLDER" says where to)
	@$(call in,controller) python -m experiments answer $(CAMPAIGNS) $(ARGS)

report: ## write the report of a matrix's newest campaign on this inventory's machines (CAMPAIGN= names another)
	@$(call in,controller) python -m experiments report "$(MATRIX)" $(if $(CAMPAIGN),--campaign "$(CAMPAIGN)") $(ARGS)

compare: ## set two campaigns side by side (A=results/<matrix>/<campaign> B=...)
	@$(call in,controller) python -m experiments compare "$(A)" "$(B)" $(ARGS)

export: ## bring a run's trained model home, for from_pretrained (RUN=results/<matrix>/<campaign>/<run>, or a run id and MATRIX=)
	@$(call in,controller) python -m experiments export "$(RUN)" --matrix "$(MATRIX)" $(if $(CAMPAIGN),--campaign "$(CAMPAIGN)") $(ARGS)

search: ## search for hyperparameters around a run (RECORD=results/<matrix>/<campaign>/<run>/<attempt>/record.json, SEARCH=file)
	@$(call in,controller) python -m experiments search "$(RECORD)" $(if $(SEARCH),--search "$(SEARCH)") $(ARGS)

bench: ## measure training beside Hugging Face's Trainer, two workers beside two single ones, and recording (DATA=folder of a prepared data set, ONLY=one-worker,two-workers,recording, ARGS=--help)
	@$(call in,test) python -m tests.benchmarks $(if $(DATA),--data "$(DATA)") $(if $(ONLY),--only "$(ONLY)") $(ARGS)

gpu-check: ## run what needs a GPU on this machine's own (without one, says so and does nothing)
	@tests/gpu/check "$(DATA)"

lint: ## lint everything
	@$(call in,test) tests/lint

lock: ## write the locks of VARIANT=cpu (if not given), cu126 or cu130 again; ADD=library adds one to those of every variant, and leaves all other pins alone; LIBRARIES=newest writes the inventory's locks of today's newest libraries
	@$(call in,controller) python roles/python_env/files/locks/make-locks $(VARIANT) $(if $(LIBRARIES),--libraries "$(LIBRARIES)") $(foreach each,$(ADD),--add "$(each)") $(ARGS)

clean: ## remove the testbed, all virtual machines, caches and trainbed's virtual environments on this machine
	@$(call in,controller) ansible-playbook playbooks/testbed_down.yml -e testbed_down_caches=true $(ARGS)
	@$(call in,controller) for state in "$${XDG_STATE_HOME:-$$HOME/.local/state}"/trainbed/vm/*/; do [ ! -d "$$state" ] \
		|| TESTBED="$$(basename "$$state")" ansible-playbook -i inventory/vm playbooks/testbed_down.yml -e testbed_down_caches=true || exit 1; done
	@rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/trainbed"
	@python3 roles/testbed/files/this-machine left
