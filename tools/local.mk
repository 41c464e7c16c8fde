# SPDX-License-Identifier: BSD-3-Clause
#
# The code of braid, rawtcp and the ABI tests; each links the objects it needs.  From core/ they
# take the parameter table alone, and from topo/ the machine: the plugin is loaded by path, as
# NCCL would.
noinst_LIBRARIES += tools/libtools.a
tools_libtools_a_SOURCES = \
	tools/child.c \
	tools/child.h \
	tools/cmd.c \
	tools/cmd.h \
	tools/commands.c \
	tools/completion.c \
	tools/conf.c \
	tools/conf.h \
	tools/drive.c \
	tools/drive.h \
	tools/handle.h \
	tools/drive_self.c \
	tools/find.c \
	tools/findings.c \
	tools/findings.h \
	tools/opt.c \
	tools/opt.h \
	tools/proxy.c \
	tools/proxy.h \
	tools/rates.c \
	tools/rates.h \
	tools/rma.c \
	tools/rma.h \
	tools/smc.c \
	tools/smc.h \
	tools/stop.c \
	tools/stop.h \
	tools/tcp.c \
	tools/tcp.h \
	tools/text.c \
	tools/text.h \
	tools/compare/compare.c \
	tools/compare/compare.h \
	tools/compare/diff.c \
	tools/compare/diff.h \
	tools/compare/diff_read.c \
	tools/compare/diff_read.h \
	tools/compare/diff_stat.c \
	tools/compare/json.c \
	tools/compare/key.c \
	tools/compare/launch.c \
	tools/compare/print.c \
	tools/compare/run.c \
	tools/compare/stat.c \
	tools/compare/summary.c \
	tools/compare/tool.c \
	tools/doctor/counters.c \
	tools/doctor/doctor.c \
	tools/doctor/doctor.h \
	tools/doctor/doctor_int.h \
	tools/doctor/env.c \
	tools/doctor/gpu.c \
	tools/doctor/hca.c \
	tools/doctor/ifaces.c \
	tools/doctor/kernel.c \
	tools/doctor/limits.c \
	tools/doctor/mend.c \
	tools/doctor/nccl.c \
	tools/doctor/nccl_names.h \
	tools/doctor/net.c \
	tools/doctor/nic.c \
	tools/doctor/nodes.c \
	tools/doctor/onesided.c \
	tools/doctor/other.c \
	tools/doctor/pcie.c \
	tools/doctor/peer.c \
	tools/doctor/plugin.c \
	tools/doctor/ports.c \
	tools/doctor/probe.c \
	tools/doctor/probe_libs.c \
	tools/doctor/probe_peer.c \
	tools/doctor/probe_plugin.c \
	tools/doctor/rdma.c \
	tools/doctor/run.c \
	tools/doctor/secret.c \
	tools/doctor/subnet.c \
	tools/doctor/subnet.h \
	tools/doctor/sys.c \
	tools/doctor/tcp.c \
	tools/doctor/verdict.c \
	tools/info/info.c \
	tools/info/info.h \
	tools/info/libs.c \
	tools/info/peer.c \
	tools/info/plugin.c \
	tools/mesh/hosts.c \
	tools/mesh/json.c \
	tools/mesh/map.c \
	tools/mesh/mesh.c \
	tools/mesh/mesh.h \
	tools/mesh/pair.c \
	tools/mesh/rounds.c \
	tools/mesh/run.c \
	tools/mesh/score.c \
	tools/mesh/score.h \
	tools/mesh/score_cells.c \
	tools/mesh/score_host.c \
	tools/mesh/score_side.c \
	tools/mesh/start.c \
	tools/mesh/verdict.c \
	tools/perf/allreduce.c \
	tools/perf/coll.c \
	tools/perf/ctl.c \
	tools/perf/ctl.h \
	tools/perf/demo.c \
	tools/perf/fabric.h \
	tools/perf/fabrics.c \
	tools/perf/gate.c \
	tools/perf/key.c \
	tools/perf/key.h \
	tools/perf/key_int.h \
	tools/perf/kinds.c \
	tools/perf/layout.c \
	tools/perf/layout.h \
	tools/perf/model.c \
	tools/perf/model.h \
	tools/perf/net.c \
	tools/perf/onesided.c \
	tools/perf/pattern.c \
	tools/perf/pattern.h \
	tools/perf/perf.c \
	tools/perf/perf.h \
	tools/perf/print.c \
	tools/perf/pump.c \
	tools/perf/pump.h \
	tools/perf/raw.c \
	tools/perf/ring.c \
	tools/perf/ring.h \
	tools/perf/row.c \
	tools/perf/serve.c \
	tools/perf/session.c \
	tools/perf/session.h \
	tools/perf/size.c \
	tools/perf/stat.c \
	tools/perf/stat.h \
	tools/perf/stream.c \
	tools/perf/worker.c \
	tools/perf/worker.h \
	tools/report/anonymize.c \
	tools/report/html.c \
	tools/report/inventory.c \
	tools/report/markdown.c \
	tools/report/page.c \
	tools/report/page.h \
	tools/report/page_compare.c \
	tools/report/page_diff.c \
	tools/report/page_mesh.c \
	tools/report/page_perf.c \
	tools/report/page_topo.c \
	tools/report/page_validate.c \
	tools/report/provenance.c \
	tools/report/report.c \
	tools/report/report.h \
	tools/report/svg.c \
	tools/topo/draw.c \
	tools/topo/topo.c \
	tools/topo/topo.h \
	tools/validate/check.c \
	tools/validate/checks.c \
	tools/validate/comms.c \
	tools/validate/connect.c \
	tools/validate/data.c \
	tools/validate/far.c \
	tools/validate/far.h \
	tools/validate/fault.c \
	tools/validate/flush.c \
	tools/validate/host.c \
	tools/validate/iwarp.c \
	tools/validate/job.c \
	tools/validate/limits.c \
	tools/validate/load.c \
	tools/validate/move.c \
	tools/validate/mr.c \
	tools/validate/net.c \
	tools/validate/order.c \
	tools/validate/heal.c \
	tools/validate/outage.c \
	tools/validate/outage.h \
	tools/validate/path.c \
	tools/validate/path.h \
	tools/validate/perf.c \
	tools/validate/props.c \
	tools/validate/ranks.c \
	tools/validate/ranks.h \
	tools/validate/ranks_flow.c \
	tools/validate/ranks_op.c \
	tools/validate/report.c \
	tools/validate/rma_fault.c \
	tools/validate/rma_group.c \
	tools/validate/rma_order.c \
	tools/validate/rma_put.c \
	tools/validate/rma_signal.c \
	tools/validate/rma_table.c \
	tools/validate/rma_window.c \
	tools/validate/run.c \
	tools/validate/scale.c \
	tools/validate/servant.c \
	tools/validate/smc.c \
	tools/validate/stranger.c \
	tools/validate/stream.c \
	tools/validate/validate.c \
	tools/validate/validate.h \
	tools/validate/verdict.c \
	tools/validate/watch.c \
	tools/watch/dump.c \
	tools/watch/metrics.c \
	tools/watch/process.c \
	tools/watch/process.h \
	tools/watch/query.c \
	tools/watch/slowest.c \
	tools/watch/slowest.h \
	tools/watch/stat.c \
	tools/watch/stat.h \
	tools/watch/top.c
if WITH_HWLOC
tools_libtools_a_SOURCES += tools/topo/hwloc.c
endif
tools_libs = tools/libtools.a libbraid-core.a $(SODIUM_LIBS) $(JANSSON_LIBS) -lm -ldl -lpthread

bin_PROGRAMS += braid
braid_SOURCES = tools/main.c
braid_LDADD = $(tools_libs) $(HWLOC_LIBS) $(LIBNL_LIBS)

# Plain TCP sockets under the same patterns: the reference for braid's figures.
noinst_PROGRAMS += tools/rawtcp
tools_rawtcp_LDADD = $(tools_libs)

# Writes docs/man/braid-params.7 from core/base/param.def, and docs/man/braid.1 from the rows of options.
noinst_PROGRAMS += tools/genman
tools_genman_LDADD = $(tools_libs) $(HWLOC_LIBS) $(LIBNL_LIBS)

dist_noinst_SCRIPTS += \
	tools/bench \
	tools/capnet \
	tools/installed \
	tools/quickstart \
	tools/recordsys
EXTRA_DIST += tools/need.sh

bench: all
	cd $(srcdir) && BRAID='$(abs_top_builddir)/braid' \
		BRAID_PLUGIN='$(abs_top_builddir)/plugin/.libs/libnccl-net-braid.so' \
		BRAID_BUILDDIR='$(abs_top_builddir)' tools/bench
.PHONY: bench
