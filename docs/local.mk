# SPDX-License-Identifier: BSD-3-Clause

nodist_man_MANS += docs/man/braid.1 docs/man/braid-params.7
CLEANFILES += docs/man/braid.1 docs/man/braid-params.7
EXTRA_DIST += docs/man/braid.1.in

# The pages name documents by their paths here; their readers find them where they are installed.
installed_paths = $(SED) 's|docs/user/|$(userdocdir)/|g' $@.tmp >$@ && rm $@.tmp

docs/man/braid-params.7: tools/genman$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) docs/man && ./tools/genman >$@.tmp && $(installed_paths)

docs/man/braid.1: tools/genman$(EXEEXT) docs/man/braid.1.in
	$(AM_V_GEN)$(MKDIR_P) docs/man && ./tools/genman $(srcdir)/docs/man/braid.1.in >$@.tmp && $(installed_paths)

userdocdir = $(docdir)/user
dist_userdoc_DATA = \
	docs/user/addresses.md docs/user/clusters.md docs/user/compare.md docs/user/doctor.md docs/user/encryption.md docs/user/gpu.md \
	docs/user/install.md docs/user/thresholds.example.json docs/user/mesh.md docs/user/messages.md docs/user/nccl.md docs/user/observability.md docs/user/onesided.md docs/user/rdma.md docs/user/reports.md \
	docs/user/reliability.md docs/user/smc.md docs/user/topology.md docs/user/tutorial.md docs/user/ucx.md \
	docs/user/validate.md docs/user/validate.schema.json

# The documents and manual pages as a site that needs no server: site/index.html.
docs: $(nodist_man_MANS)
	$(AM_V_GEN)$(SHELL) $(srcdir)/docs/site/build '$(srcdir)' docs/man site
	@echo 'the documents: site/index.html'
EXTRA_DIST += docs/site
.PHONY: docs

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

EXTRA_DIST += docs/decisions docs/examples docs/results \
	docs/dev/adding-a-transport.md docs/dev/architecture.md docs/dev/glossary.md docs/dev/life-of-a-message.md \
	docs/dev/rationale.md docs/dev/testing.md docs/dev/wire.md
