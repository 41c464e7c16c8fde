# SPDX-License-Identifier: BSD-3-Clause
#
# What packages need: the SBOM, a pkg-config file, and what makes a package of a tarball.
EXTRA_DIST += build-aux/debian build-aux/braid.spec.in build-aux/package build-aux/sbom

nodist_doc_DATA = braid.spdx.json
CLEANFILES += $(nodist_doc_DATA)
braid.spdx.json: plugin/libnccl-net-braid.la braid$(EXEEXT) build-aux/sbom git-hash.h
	$(AM_V_GEN)CC='$(CC) $(SODIUM_CPPFLAGS)' $(SHELL) $(srcdir)/build-aux/sbom '$(PACKAGE_VERSION)' $(RELEASE_DATE) \
		plugin/.libs/libnccl-net-braid.so braid$(EXEEXT) >$@.tmp && mv $@.tmp $@

pkgconfigdir = $(libdir)/pkgconfig
nodist_pkgconfig_DATA = build-aux/braid.pc
schemadir = $(datadir)/braid/schema
dist_schema_DATA = docs/user/validate.schema.json

# In packages/ of the build directory.
deb rpm: dist
	$(SHELL) $(srcdir)/build-aux/package $@ $(distdir).tar.gz packages
.PHONY: deb rpm
