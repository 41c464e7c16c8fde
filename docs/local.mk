# SPDX-License-Identifier: BSD-3-Clause

nodist_man_MANS += docs/man/braid.1 docs/man/braid-params.7
CLEANFILES += docs/man/braid.1 docs/man/braid-params.7
EXTRA_DIST += docs/man/braid.1.in

docs/man/braid-params.7: tools/genman$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) docs/man && ./tools/genman >$@.tmp && mv $@.tmp $@

docs/man/braid.1: tools/genman$(EXEEXT) docs/man/braid.1.in
	$(AM_V_GEN)$(MKDIR_P) docs/man && ./tools/genman $(srcdir)/docs/man/braid.1.in >$@.tmp && mv $@.tmp $@

# Where each shell looks; completion/ in the build tree.
bashcompdir = $(datadir)/bash-completion/completions
zshcompdir = $(datadir)/zsh/site-functions
fishcompdir = $(datadir)/fish/vendor_completions.d
nodist_bashcomp_DATA = completion/braid
nodist_zshcomp_DATA = completion/_braid
nodist_fishcomp_DATA = completion/braid.fish
CLEANFILES += $(nodist_bashcomp_DATA) $(nodist_zshcomp_DATA) $(nodist_fishcomp_DATA)

completion/braid: braid$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) completion && ./braid completion --shell bash >$@.tmp && mv $@.tmp $@
completion/_braid: braid$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) completion && ./braid completion --shell zsh >$@.tmp && mv $@.tmp $@
completion/braid.fish: braid$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) completion && ./braid completion --shell fish >$@.tmp && mv $@.tmp $@

EXTRA_DIST += docs/addresses.md docs/architecture.md docs/compare.md docs/doctor.md docs/gpu.md docs/messages.md docs/nccl.md docs/observability.md docs/wire.md docs/rdma.md docs/reliability.md docs/smc.md docs/topology.md docs/ucx.md docs/validate.md docs/validate.schema.json docs/decisions docs/results
