# SPDX-License-Identifier: BSD-3-Clause

dist_man_MANS += docs/man/braid.1
nodist_man_MANS += docs/man/braid-params.7
CLEANFILES += docs/man/braid-params.7

docs/man/braid-params.7: tools/genman$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) docs/man && ./tools/genman >$@.tmp && mv $@.tmp $@

EXTRA_DIST += docs/architecture.md docs/doctor.md docs/gpu.md docs/messages.md docs/wire.md docs/rdma.md docs/reliability.md docs/smc.md docs/topology.md docs/ucx.md docs/decisions docs/results
