# SPDX-License-Identifier: BSD-3-Clause
#
# To add a test, name it in one list.
#   unit_tests  tests/unit/test_x    a cmocka program of that one file; over fake NICs: tests/unit/ports.h
#   abi_tests   tests/abi/test_x     the same, made of tests/abi/abi.h
#   fuzz_tests  tests/fuzz/fuzz_x    LLVMFuzzerTestOneInput() of that one file, and one more line
#                                    below; its corpus is tests/fuzz/corpus/x/
#   tidy_tests, net_tests, rdma_tests, ucx_tests, smc_tests, cli_tests scripts (sh, bash or bats), executable
#   vm_tests    tests/vm/cases/x.sh  a script for virtual machines (tests/vm/run), not in make check
# --wrap for a neighbour: tests_unit_test_x_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=braid_neighbour
# A preloaded fake: check_LTLIBRARIES += tests/lib/fault.la, with
#   tests_lib_fault_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
#
# Every test goes through tests/tap, which sees to the time limit and counts its cases.  It finds
# in the environment: BRAID_TEST_PLUGIN (the built .so), BRAID_TEST_BRAID (the built command),
# BRAID_TEST_SRCDIR, BRAID_TEST_BUILDDIR, BRAID_TEST_SANITIZER, BRAID_TEST_CC.

unit_tests = \
	tests/unit/test_addr \
	tests/unit/test_aead \
	tests/unit/test_accept \
	tests/unit/test_arrive \
	tests/unit/test_auth \
	tests/unit/test_awaited \
	tests/unit/test_bind \
	tests/unit/test_clock \
	tests/unit/test_close \
	tests/unit/test_coll_here \
	tests/unit/test_coll_ops \
	tests/unit/test_comm \
	tests/unit/test_compare \
	tests/unit/test_conn \
	tests/unit/test_connect \
	tests/unit/test_copy \
	tests/unit/test_crc32c \
	tests/unit/test_credits \
	tests/unit/test_cross \
	tests/unit/test_declined \
	tests/unit/test_dial \
	tests/unit/test_diff \
	tests/unit/test_due \
	tests/unit/test_encrypt \
	tests/unit/test_events \
	tests/unit/test_fail \
	tests/unit/test_flight \
	tests/unit/test_flips \
	tests/unit/test_flush \
	tests/unit/test_frame \
	tests/unit/test_gpucopy \
	tests/unit/test_handle \
	tests/unit/test_handshake \
	tests/unit/test_health \
	tests/unit/test_hello \
	tests/unit/test_hist \
	tests/unit/test_job_key \
	tests/unit/test_job_secret \
	tests/unit/test_join \
	tests/unit/test_keypair \
	tests/unit/test_keys \
	tests/unit/test_ktls \
	tests/unit/test_lane \
	tests/unit/test_lane_count \
	tests/unit/test_later \
	tests/unit/test_lib \
	tests/unit/test_libcrypto \
	tests/unit/test_link \
	tests/unit/test_link_control \
	tests/unit/test_link_offer \
	tests/unit/test_link_reads \
	tests/unit/test_link_recover \
	tests/unit/test_link_woken \
	tests/unit/test_links \
	tests/unit/test_listen \
	tests/unit/test_listener \
	tests/unit/test_log \
	tests/unit/test_loop \
	tests/unit/test_machine \
	tests/unit/test_match \
	tests/unit/test_mesh_map \
	tests/unit/test_mesh_rounds \
	tests/unit/test_mesh_score \
	tests/unit/test_mrcache \
	tests/unit/test_msg_control \
	tests/unit/test_nccl \
	tests/unit/test_netdev \
	tests/unit/test_netdev_sys \
	tests/unit/test_open \
	tests/unit/test_os \
	tests/unit/test_pairs \
	tests/unit/test_param \
	tests/unit/test_path \
	tests/unit/test_peer_handle \
	tests/unit/test_pool \
	tests/unit/test_ports \
	tests/unit/test_process \
	tests/unit/test_mover \
	tests/unit/test_mover_tune \
	tests/unit/test_progress \
	tests/unit/test_reap \
	tests/unit/test_record \
	tests/unit/test_sealed \
	tests/unit/test_recv \
	tests/unit/test_redial \
	tests/unit/test_reverse \
	tests/unit/test_proto_rma \
	tests/unit/test_rma_abi \
	tests/unit/test_rma_apply \
	tests/unit/test_rma_channel \
	tests/unit/test_rma_get \
	tests/unit/test_rma_join \
	tests/unit/test_rma_land \
	tests/unit/test_rma_order \
	tests/unit/test_rma_post \
	tests/unit/test_rma_slot \
	tests/unit/test_rma_window \
	tests/unit/test_rma_word \
	tests/unit/test_rx \
	tests/unit/test_send \
	tests/unit/test_secret \
	tests/unit/test_secrets_in_time \
	tests/unit/test_self \
	tests/unit/test_service \
	tests/unit/test_setup_coll \
	tests/unit/test_setup_links \
	tests/unit/test_setup_offer \
	tests/unit/test_setup_recover \
	tests/unit/test_setup_moved \
	tests/unit/test_share \
	tests/unit/test_silence \
	tests/unit/test_slab \
	tests/unit/test_smc \
	tests/unit/test_smc_setup \
	tests/unit/test_stall \
	tests/unit/test_stopped \
	tests/unit/test_slow \
	tests/unit/test_spread \
	tests/unit/test_stream \
	tests/unit/test_thread \
	tests/unit/test_transport \
	tests/unit/test_times \
	tests/unit/test_tries \
	tests/unit/test_txq \
	tests/unit/test_unexpected \
	tests/unit/test_file \
	tests/unit/test_replay \
	tests/unit/test_metrics \
	tests/unit/test_rates \
	tests/unit/test_report \
	tests/unit/test_stat \
	tests/unit/test_statdir \
	tests/unit/test_unpaced \
	tests/unit/test_view \
	tests/unit/test_words \
	tests/unit/test_wakeup \
	tests/unit/test_watched \
	tests/unit/test_ways \
	tests/unit/test_why \
	tests/unit/test_window \
	tests/unit/test_work \
	tests/unit/test_zerocopy

# Those that take longest begin first.
abi_tests = \
	$(rdma_abi_tests) \
	tests/abi/test_encrypt \
	tests/abi/test_fault \
	tests/abi/test_badpeer \
	tests/abi/test_badpeer_chance \
	tests/abi/test_badpeer_lanes \
	tests/abi/test_close \
	tests/abi/test_connect \
	tests/abi/test_cut \
	tests/abi/test_death \
	tests/abi/test_descriptors \
	tests/abi/test_fork \
	tests/abi/test_group \
	tests/abi/test_handshake \
	tests/abi/test_hints \
	tests/abi/test_job_secret \
	tests/abi/test_life \
	tests/abi/test_loss \
	tests/abi/test_mixed \
	tests/abi/test_old_new \
	tests/abi/test_order \
	tests/abi/test_pool \
	tests/abi/test_port_range \
	tests/abi/test_queue \
	tests/abi/test_renew \
	tests/abi/test_rma \
	tests/abi/test_rma_fault \
	tests/abi/test_rma_life \
	tests/abi/test_shapes \
	tests/abi/test_sizes \
	tests/abi/test_slow_lane \
	tests/abi/test_stat \
	tests/abi/test_strangers \
	tests/abi/test_tap \
	tests/abi/test_threads \
	tests/abi/test_vdevice \
	tests/abi/test_why

fuzz_tests = \
	tests/fuzz/fuzz_cpus \
	tests/fuzz/fuzz_filter \
	tests/fuzz/fuzz_frames \
	tests/fuzz/fuzz_handle \
	tests/fuzz/fuzz_hello \
	tests/fuzz/fuzz_machine \
	tests/fuzz/fuzz_param \
	tests/fuzz/fuzz_records \
	tests/fuzz/fuzz_rma \
	tests/fuzz/fuzz_smcdiag

# Programs that go through the TAP driver and need nothing of the above.
sim_tests = tests/sim/test_sim

tidy_tests = \
	tests/tidy/docs.sh \
	tests/tidy/exports.sh \
	tests/tidy/floors.sh \
	tests/tidy/layers.sh \
	tests/tidy/needed.sh \
	tests/tidy/rules.sh \
	tests/tidy/unbuilt.sh

net_tests = \
	tests/net/bind.sh \
	tests/net/blackhole.sh \
	tests/net/crossed.sh \
	tests/net/why.sh \
	tests/net/zerocopy.sh \
	tests/net/doctor.sh \
	tests/net/dscp.sh \
	tests/net/gid.sh \
	tests/net/hashed.sh \
	tests/net/ipv6.sh \
	tests/net/mesh.sh \
	tests/net/names.sh \
	tests/net/oneway.sh \
	tests/net/moved.sh \
	tests/net/nics.sh \
	tests/net/peer.sh \
	tests/net/ports.sh \
	tests/net/rails.sh \
	tests/net/topologies.sh \
	tests/net/unreachable.sh \
	tests/net/veth.sh

# The ABI tests over NICs that exist in memory only.
rdma_tests = \
	tests/rdma/ib.sh \
	tests/rdma/iwarp.sh \
	tests/rdma/roce1.sh \
	tests/rdma/roce2.sh \
	tests/rdma/strict.sh
ucx_tests = \
	tests/ucx/faults.sh \
	tests/ucx/gpu.sh \
	tests/ucx/shm.sh \
	tests/ucx/tcp.sh
smc_tests = \
	tests/smc/abi.sh \
	tests/smc/fallback.sh

# NCCL's own library, on GPUs that the CPU plays: the first two in every make check.
nccl_quick_tests = \
	tests/nccl/found.sh \
	tests/nccl/quick.sh
nccl_tests = \
	tests/nccl/life.sh \
	tests/nccl/values.sh \
	tests/nccl/faults.sh \
	tests/nccl/rdma.sh \
	tests/nccl/net.sh \
	tests/nccl/abi.sh \
	tests/nccl/pxn.sh \
	tests/nccl/ucx.sh \
	$(nccl_quick_tests)

fault_tests = tests/faults/check.sh tests/faults/heal.sh tests/faults/onesided.sh \
	tests/faults/setup.sh tests/scale/scale.sh

cli_tests = \
	tests/cli/completion.bats \
	tests/cli/compare.bats \
	tests/cli/demo.bats \
	tests/cli/diff.bats \
	tests/cli/doctor.bats \
	tests/cli/examples.bats \
	tests/cli/exit.bats \
	tests/cli/info.bats \
	tests/cli/install.bats \
	tests/cli/listen.bats \
	tests/cli/main.bats \
	tests/cli/mesh.bats \
	tests/cli/perf.bats \
	tests/cli/quiz.bats \
	tests/cli/report.bats \
	tests/cli/stat.bats \
	tests/cli/topo.bats \
	tests/cli/tutorial.sh \
	tests/cli/validate.bats \
	tests/cli/validate_rma.bats

vm_tests = \
	tests/vm/cases/abi-rxe.sh \
	tests/vm/cases/abi-siw.sh \
	tests/vm/cases/boot.sh \
	tests/vm/cases/compare.sh \
	tests/vm/cases/doctor.sh \
	tests/vm/cases/faults.sh \
	tests/vm/cases/ktls.sh \
	tests/vm/cases/loss.sh \
	tests/vm/cases/outage.sh \
	tests/vm/cases/pair.sh \
	tests/vm/cases/rdma-faults-siw.sh \
	tests/vm/cases/rdma-faults.sh \
	tests/vm/cases/rdma-outage-siw.sh \
	tests/vm/cases/rdma-outage.sh \
	tests/vm/cases/rdma-pair-siw.sh \
	tests/vm/cases/rdma-pair.sh \
	tests/vm/cases/rdma.sh \
	tests/vm/cases/topologies.sh \
	tests/vm/cases/ucx-rxe.sh \
	tests/vm/cases/zerocopy.sh
# SMC, of 6.12 and of 6.1, and udmabuf: some minutes each, and a kernel of backports'; make vm-smc.
vm_smc_tests = \
	tests/vm/cases/smc-abi.sh \
	tests/vm/cases/smc-hang.sh \
	tests/vm/cases/smc.sh \
	tests/vm/cases/udmabuf.sh

# What tests/unit/test_machine and tests/cli/topo.bats look at: tests/topo/mktree makes trees of the
# descriptions; the XML is what libhwloc 2.9.0 wrote of such trees.
recorded_machines = \
	tests/topo/cloud-vm.txt \
	tests/topo/dgx-a100.txt \
	tests/topo/dgx-a100.xml \
	tests/topo/dgx1-v100.txt \
	tests/topo/dgx1-v100.xml \
	tests/topo/four-gpu.txt \
	tests/topo/four-gpu.xml \
	tests/topo/grace-hopper.txt \
	tests/topo/hgx-h100.txt \
	tests/topo/hyperv-vm.txt \
	tests/topo/mixed.txt \
	tests/topo/one-side.txt

# -- libraries ------------------------------------------------------------------------------------

# What tests share; each links what it asks for.
check_LIBRARIES += tests/libtest.a
tests_libtest_a_SOURCES = \
	tests/abi/abi.h \
	tests/abi/abi_util.c \
	tests/abi/badpeer.c \
	tests/abi/badpeer.h \
	tests/abi/gpu.c \
	tests/abi/gpu.h \
	tests/abi/loss.c \
	tests/abi/loss.h \
	tests/abi/nics.c \
	tests/abi/nics.h \
	tests/abi/onesided.c \
	tests/abi/onesided.h \
	tests/abi/rdma.c \
	tests/abi/rdma.h \
	tests/lib/golden.h \
	tests/lib/hex.h \
	tests/lib/channel.c \
	tests/lib/channel.h \
	tests/lib/comms.c \
	tests/lib/comms.h \
	tests/lib/hostile.c \
	tests/lib/hostile.h \
	tests/lib/null.c \
	tests/lib/null.h \
	tests/lib/pair.c \
	tests/lib/pair.h \
	tests/lib/queued.h \
	tests/lib/req.h \
	tests/lib/speak.c \
	tests/lib/speak.h \
	tests/lib/versions.h \
	tests/lib/warns.c \
	tests/lib/warns.h
LDADD = tests/libtest.a $(tools_libs) $(CMOCKA_LIBS)

if FUZZ
fuzz_libs = libbraid-core.a $(SODIUM_LIBS) $(FUZZ_LIBS)
else
check_LIBRARIES += tests/fuzz/libreplay.a
tests_fuzz_libreplay_a_SOURCES = tests/fuzz/replay.c
fuzz_libs = tests/fuzz/libreplay.a libbraid-core.a $(SODIUM_LIBS)
endif
tests_fuzz_fuzz_cpus_LDADD = $(fuzz_libs)
tests_fuzz_fuzz_filter_LDADD = $(fuzz_libs)
tests_fuzz_fuzz_frames_LDADD = $(fuzz_libs)
tests_fuzz_fuzz_handle_LDADD = $(fuzz_libs)
tests_fuzz_fuzz_hello_LDADD = $(fuzz_libs)
tests_fuzz_fuzz_machine_LDADD = $(fuzz_libs)
tests_fuzz_fuzz_param_LDADD = $(fuzz_libs)
tests_fuzz_fuzz_records_LDADD = $(fuzz_libs)
tests_fuzz_fuzz_rma_LDADD = tests/libtest.a $(fuzz_libs)
tests_fuzz_fuzz_smcdiag_LDADD = $(fuzz_libs)

# Programs that need more than that.
tests_unit_test_flush_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=braid_mr_flush
stub_sources = tests/unit/stub.c tests/unit/stub.h
tests_unit_test_link_SOURCES = tests/unit/test_link.c $(stub_sources)
tests_unit_test_close_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=braid_link_go
tests_unit_test_link_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=braid_yield
tests_unit_test_link_control_SOURCES = tests/unit/test_link_control.c $(stub_sources)
tests_unit_test_link_control_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=braid_yield
tests_unit_test_lane_SOURCES = tests/unit/test_lane.c $(stub_sources)
tests_unit_test_link_recover_SOURCES = tests/unit/test_link_recover.c $(stub_sources)
tests_unit_test_connect_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=braid_service_try,--wrap=braid_dial_at_once,--wrap=braid_dial_help
tests_unit_test_dial_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=braid_listener_port,--wrap=braid_why_dial
tests_unit_test_reverse_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=braid_dial_reversed,--wrap=braid_handshake_accept,--wrap=braid_handshake_end,--wrap=braid_unwatch
tests_unit_test_handshake_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=braid_conn_step
tests_unit_test_links_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=send,--wrap=recv
tests_unit_test_mover_SOURCES = tests/unit/test_mover.c $(stub_sources)
tests_unit_test_mover_tune_SOURCES = tests/unit/test_mover_tune.c $(stub_sources)
tests_unit_test_progress_SOURCES = tests/unit/test_progress.c $(stub_sources)
queue_sources = tests/unit/queue.c tests/unit/queue.h
tests_unit_test_replay_SOURCES = tests/unit/test_replay.c $(queue_sources)
tests_unit_test_zerocopy_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc
tests_unit_test_replay_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc
tests_unit_test_txq_SOURCES = tests/unit/test_txq.c $(queue_sources)
tests_unit_test_rx_SOURCES = tests/unit/test_rx.c $(stub_sources)
tests_unit_test_spread_SOURCES = tests/unit/test_spread.c $(stub_sources)
tests_unit_test_loop_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=braid_handshake_event,--wrap=braid_listener_event \
	-Wl,--wrap=braid_listener_read_events,--wrap=braid_dial_link,--wrap=braid_dial_lane \
	-Wl,--wrap=braid_handshakes_left,--wrap=braid_handshakes_poll
tests_unit_test_aead_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc,--wrap=aligned_alloc \
	-Wl,--wrap=braid_secret_new,--wrap=sodium_runtime_has_aesni,--wrap=braid_libcrypto_has \
	-Wl,--wrap=braid_libcrypto_new,--wrap=braid_libcrypto_begin \
	-Wl,--wrap=braid_libcrypto_update,--wrap=braid_libcrypto_end
tests_unit_test_libcrypto_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc,--wrap=dlopen,--wrap=braid_lib_find
tests_unit_test_record_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc,--wrap=braid_secret_new
tests_unit_test_job_key_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=braid_secret_new
tests_unit_test_job_secret_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=fstat,--wrap=read
tests_unit_test_secret_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=mmap,--wrap=munmap,--wrap=madvise
tests_unit_test_secrets_in_time_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=crypto_scalarmult
tests_unit_test_process_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=braid_auth_init,--wrap=braid_os_atfork
tests_unit_test_stopped_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=braid_thread_of
tests_unit_test_why_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=braid_neigh_get
# Its own tables are the plugin that it loads.
tests_unit_test_rma_abi_SOURCES = tests/unit/test_rma_abi.c plugin/rma_abi.c
tests_unit_test_rma_abi_LDFLAGS = $(AM_LDFLAGS) -rdynamic
tests_unit_test_rma_apply_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc
coll_sources = tests/unit/coll.c tests/unit/coll.h
coll_wraps = -Wl,--wrap=braid_listen_new,--wrap=braid_listen_close,--wrap=braid_connect \
	-Wl,--wrap=braid_connect_give_up,--wrap=braid_mr_new,--wrap=braid_mr_free \
	-Wl,--wrap=braid_stops_wait
tests_unit_test_coll_here_SOURCES = tests/unit/test_coll_here.c $(coll_sources)
tests_unit_test_coll_here_LDFLAGS = $(AM_LDFLAGS) $(coll_wraps) \
	-Wl,--wrap=braid_gpucopy_begin,--wrap=braid_gpucopy_move \
	-Wl,--wrap=braid_gpucopy_end,--wrap=braid_mr_flush
tests_unit_test_coll_ops_SOURCES = tests/unit/test_coll_ops.c $(coll_sources)
tests_unit_test_coll_ops_LDFLAGS = $(AM_LDFLAGS) $(coll_wraps) -Wl,--wrap=calloc
tests_unit_test_setup_coll_SOURCES = tests/unit/test_setup_coll.c $(coll_sources)
tests_unit_test_setup_coll_LDFLAGS = $(AM_LDFLAGS) $(coll_wraps)
fakegpu_sources = tests/lib/fakegpu.c tests/lib/fakegpu.h
fakegpu_wraps = -Wl,--wrap=braid_gpucopy_begin,--wrap=braid_gpucopy_move \
	-Wl,--wrap=braid_gpucopy_end,--wrap=braid_mr_flush,--wrap=calloc
tests_unit_test_rma_land_SOURCES = tests/unit/test_rma_land.c $(fakegpu_sources)
tests_unit_test_rma_land_LDFLAGS = $(AM_LDFLAGS) $(fakegpu_wraps)
tests_unit_test_rma_word_SOURCES = tests/unit/test_rma_word.c $(fakegpu_sources)
tests_unit_test_rma_word_LDFLAGS = $(AM_LDFLAGS) $(fakegpu_wraps) -Wl,--wrap=realloc \
	-Wl,--wrap=braid_bar_map,--wrap=braid_bar_unmap,--wrap=braid_bar_load,--wrap=braid_bar_store
tests_unit_test_rma_window_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=realloc
tests_unit_test_stream_SOURCES = tests/unit/test_stream.c tests/unit/unkind.c tests/unit/unkind.h
tests_unit_test_netdev_SOURCES = tests/unit/test_netdev.c tests/unit/netdevs.c tests/unit/netdevs.h
tests_unit_test_netdev_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=getifaddrs,--wrap=freeifaddrs
tests_unit_test_netdev_sys_SOURCES = tests/unit/test_netdev_sys.c tests/unit/netdevs.c tests/unit/netdevs.h
tests_unit_test_netdev_sys_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=getifaddrs,--wrap=freeifaddrs
# Counts calls by being first where the plugin's names are looked up (tests/lib/count.h); it
# stands in for send() and the like, so only those who ask for it may have it.
tests_abi_test_shapes_SOURCES = tests/abi/test_shapes.c tests/lib/count.c tests/lib/count.h
tests_abi_test_shapes_LDFLAGS = $(AM_LDFLAGS) -rdynamic

# Its setsockopt() is the plugin's, too, for the same reason.
tests_abi_test_renew_LDFLAGS = $(AM_LDFLAGS) -rdynamic

tests_abi_test_fault_SOURCES = tests/abi/test_fault.c tests/lib/fault.c tests/lib/fault.h

# NICs that exist in memory only, in place of the real libraries (tests/fake/ctl.h).  -version-info
# makes them libibverbs.so.1, librdmacm.so.1 and libmlx5.so.1, in tests/fake/.libs.
if WITH_RDMA
fake_ldflags = $(AM_LDFLAGS) -shared -version-info 1:0:0 -rpath /nowhere -Wl,-z,nodelete \
	-Wl,-rpath,'$$ORIGIN'
check_LTLIBRARIES += tests/fake/libibverbs.la
tests_fake_libibverbs_la_SOURCES = \
	tests/fake/cq.c \
	tests/fake/ctl.h \
	tests/fake/describe.c \
	tests/fake/device.c \
	tests/fake/event.c \
	tests/fake/fabric.c \
	tests/fake/fake.h \
	tests/fake/fault.c \
	tests/fake/mr.c \
	tests/fake/nic.c \
	tests/fake/nic.h \
	tests/fake/path.c \
	tests/fake/qp.c \
	tests/fake/requester.c \
	tests/fake/responder.c \
	tests/fake/slow.c \
	tests/fake/srq.c
tests_fake_libibverbs_la_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CPPFLAGS)
tests_fake_libibverbs_la_LDFLAGS = $(fake_ldflags)
check_LTLIBRARIES += tests/fake/librdmacm.la
tests_fake_librdmacm_la_SOURCES = tests/fake/cm.c tests/fake/cm.h tests/fake/cm_thread.c
tests_fake_librdmacm_la_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CPPFLAGS)
tests_fake_librdmacm_la_LDFLAGS = $(fake_ldflags)
tests_fake_librdmacm_la_LIBADD = tests/fake/libibverbs.la
check_LTLIBRARIES += tests/fake/libmlx5.la
tests_fake_libmlx5_la_SOURCES = tests/fake/mlx5.c
tests_fake_libmlx5_la_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CPPFLAGS)
tests_fake_libmlx5_la_LDFLAGS = $(fake_ldflags)
tests_fake_libmlx5_la_LIBADD = tests/fake/libibverbs.la
check_PROGRAMS += tests/fake/fakectl
tests_fake_fakectl_LDFLAGS = $(AM_LDFLAGS) -no-install
tests_fake_fakectl_LDADD = tests/fake/libibverbs.la
# Ports of these NICs, for tests of verbs/.
tests_libtest_a_SOURCES += tests/unit/lanes.c tests/unit/lanes.h tests/unit/ports.c tests/unit/ports.h
unit_tests += \
	tests/unit/test_verbs_attr \
	tests/unit/test_verbs_blob \
	tests/unit/test_verbs_bounce \
	tests/unit/test_verbs_cm \
	tests/unit/test_verbs_counts \
	tests/unit/test_verbs_direct \
	tests/unit/test_verbs_ece \
	tests/unit/test_verbs_events \
	tests/unit/test_verbs_gid \
	tests/unit/test_verbs_gidtab \
	tests/unit/test_verbs_gpu \
	tests/unit/test_verbs_gpu_copy \
	tests/unit/test_verbs_gpu_reg \
	tests/unit/test_verbs_grow \
	tests/unit/test_verbs_hca \
	tests/unit/test_verbs_lib \
	tests/unit/test_verbs_life \
	tests/unit/test_verbs_loop \
	tests/unit/test_verbs_mr \
	tests/unit/test_verbs_port \
	tests/unit/test_verbs_qp_gid \
	tests/unit/test_verbs_qp_make \
	tests/unit/test_verbs_qp_mem \
	tests/unit/test_verbs_qp_self \
	tests/unit/test_verbs_qp_setup \
	tests/unit/test_verbs_qp_state \
	tests/unit/test_verbs_qp_try \
	tests/unit/test_verbs_recv \
	tests/unit/test_verbs_rest \
	tests/unit/test_verbs_route \
	tests/unit/test_verbs_rx \
	tests/unit/test_verbs_sigpipe \
	tests/unit/test_verbs_tx \
	tests/unit/test_verbs_verbs
unit_tests += tests/unit/test_fake_cm tests/unit/test_fake_data tests/unit/test_fake_faults
fake_libs = tests/fake/librdmacm.la tests/fake/libibverbs.la $(CMOCKA_LIBS)
tests_unit_test_fake_cm_SOURCES = tests/unit/test_fake_cm.c tests/unit/fake.c tests/unit/fake.h
tests_unit_test_fake_cm_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CPPFLAGS)
tests_unit_test_fake_cm_LDFLAGS = $(AM_LDFLAGS) -no-install
tests_unit_test_fake_cm_LDADD = $(fake_libs)
tests_unit_test_fake_data_SOURCES = tests/unit/test_fake_data.c tests/unit/fake.c tests/unit/fake.h
tests_unit_test_fake_data_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CPPFLAGS)
tests_unit_test_fake_data_LDFLAGS = $(AM_LDFLAGS) -no-install
tests_unit_test_fake_data_LDADD = $(fake_libs)
tests_unit_test_fake_faults_SOURCES = tests/unit/test_fake_faults.c tests/unit/fake.c tests/unit/fake.h
tests_unit_test_fake_faults_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CPPFLAGS)
tests_unit_test_fake_faults_LDFLAGS = $(AM_LDFLAGS) -no-install
tests_unit_test_fake_faults_LDADD = $(fake_libs)
rdma_fault_tests = \
	tests/abi/test_rdma_faults \
	tests/abi/test_rdma_calls \
	tests/abi/test_rdma_choice \
	tests/abi/test_rdma_limits \
	tests/abi/test_rdma_memory \
	tests/abi/test_rdma_peer
rdma_abi_tests = $(rdma_fault_tests) tests/abi/test_ports tests/abi/test_slow_nic tests/abi/test_words
# A GPU that exists in memory only, as libcuda.so.1 in tests/fakecuda/.libs (its ctl.h).
check_LTLIBRARIES += tests/fakecuda/libcuda.la
tests_fakecuda_libcuda_la_SOURCES = tests/fakecuda/cuda.c tests/fakecuda/ctl.h \
	tests/fakecuda/fake.h tests/fakecuda/stream.c
tests_fakecuda_libcuda_la_LDFLAGS = $(fake_ldflags)
# ... and GDRCopy's library for it, libgdrapi.so.2.
check_LTLIBRARIES += tests/fakecuda/libgdrapi.la
tests_fakecuda_libgdrapi_la_SOURCES = tests/fakecuda/gdr.c
tests_fakecuda_libgdrapi_la_LDFLAGS = $(AM_LDFLAGS) -shared -version-info 2:0:0 -rpath /nowhere \
	-Wl,-z,nodelete -Wl,-rpath,'$$ORIGIN'
tests_fakecuda_libgdrapi_la_LIBADD = tests/fakecuda/libcuda.la
gpu_tests = \
	tests/abi/test_gpu_copy \
	tests/abi/test_gpu_direct \
	tests/abi/test_gpu_fail \
	tests/abi/test_gpu_flush \
	tests/abi/test_gpu_messages \
	tests/abi/test_gpu_offer \
	tests/abi/test_gpu_register \
	tests/abi/test_rma_gpu \
	tests/abi/test_rma_nic
rdma_abi_tests += $(gpu_tests)
# What tests/rdma/*.sh and tests/ucx/gpu.sh run besides the ABI tests.
rdma_programs = tests/rdma/test_counts tests/ucx/test_gpu
endif

# A kernel that has SMC, preloaded: its sockets are TCP's.
check_LTLIBRARIES += tests/fakesmc/smc.la
tests_fakesmc_smc_la_SOURCES = tests/fakesmc/smc.c
tests_fakesmc_smc_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_fakesmc_smc_la_LIBADD = -ldl

# A plugin that is broken in one way (BREAK) of many: what braid validate is to find.
check_LTLIBRARIES += tests/validate/broken.la
tests_validate_broken_la_SOURCES = tests/validate/broken.c
tests_validate_broken_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_validate_broken_la_LIBADD = -ldl
check_LTLIBRARIES += tests/validate/broken_rma.la
tests_validate_broken_rma_la_SOURCES = tests/validate/broken_rma.c
tests_validate_broken_rma_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_validate_broken_rma_la_LIBADD = -ldl

# The simulator: the product as a module, and what it takes from libc taken from the simulator.
# Within an LTO unit --wrap does nothing, and of a module's flags libtool drops a bare -fno-lto.
check_LTLIBRARIES += tests/sim/node.la
tests_sim_node_la_SOURCES = tests/sim/node.c tests/sim/node.h
tests_sim_node_la_LDFLAGS = $(AM_LDFLAGS) $(NO_LTO:%=-XCClinker %) \
	-module -avoid-version -shared -rpath /nowhere \
	-Wl,--exclude-libs,ALL \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free \
	-Wl,--wrap=sched_yield,--wrap=pthread_mutex_lock,--wrap=pthread_detach \
	-Wl,--wrap=pthread_atfork,--wrap=getpid,--wrap=gethostname \
	-Wl,--wrap=braid_tries_patience,--wrap=braid_rma_end_epoch,--wrap=braid_slow_tick \
	-Wl,--wrap=braid_reap_link \
	$(core_module)
tests_sim_node_la_LIBADD = $(SODIUM_MODULE_LIBS)
EXTRA_tests_sim_node_la_DEPENDENCIES = libbraid-core.a
tests_sim_test_sim_SOURCES = \
	tests/sim/sim.h \
	tests/sim/sim_model.c \
	tests/sim/sim_net.c \
	tests/sim/sim_net.h \
	tests/sim/sim_os.c \
	tests/sim/sim_outage.c \
	tests/sim/sim_plan.c \
	tests/sim/sim_rma.c \
	tests/sim/sim_rma.h \
	tests/sim/sim_rma_plan.c \
	tests/sim/sim_run.c \
	tests/sim/sim_scale.c \
	tests/sim/test_sim.c
tests_sim_test_sim_LDADD = -ldl

# Faults on the real thing, against any plugin: tests/faults/faults --help.
check_PROGRAMS += tests/faults/faults
tests_faults_faults_SOURCES = \
	tests/faults/actor.h \
	tests/faults/faults.c \
	tests/faults/heal.c \
	tests/faults/host.c \
	tests/faults/hosts.c \
	tests/faults/hosts.h \
	tests/faults/jobs.c \
	tests/faults/messages.c \
	tests/faults/path.c \
	tests/faults/peer.c \
	tests/faults/play.h \
	tests/faults/puts.c \
	tests/faults/rows.c \
	tests/faults/run.c \
	tests/faults/run.h \
	tests/faults/shape.c \
	tests/faults/stage.c \
	tests/faults/stage.h \
	tests/faults/strangers.c \
	tests/faults/traffic.c \
	tests/faults/wire.c \
	tests/faults/wire.h \
	tests/faults/witness.c \
	tests/faults/witness.h \
	tests/lib/queued.h
tests_faults_faults_LDADD = $(tools_libs)

# Faults of set-up, step by step: tests/faults/setup --help.
check_PROGRAMS += tests/faults/setup
tests_faults_setup_SOURCES = \
	tests/faults/setup.c \
	tests/faults/setup.h \
	tests/faults/setup_case.c \
	tests/faults/setup_end.c \
	tests/faults/setup_puts.c \
	tests/faults/setup_relay.c \
	tests/faults/setup_self.h \
	tests/faults/stage.c \
	tests/faults/stage.h \
	tests/faults/witness.c \
	tests/faults/witness.h \
	tests/lib/fault.c \
	tests/lib/fault.h \
	tests/lib/queued.h
tests_faults_setup_LDADD = $(tools_libs)

# What thousands of peers cost one process: see the head of scale.c.
check_PROGRAMS += tests/scale/scale
tests_scale_scale_SOURCES = tests/scale/crowd.c tests/scale/crowd.h tests/scale/scale.c
tests_scale_scale_LDADD = $(tools_libs)

# Two processes that connect to each other at once, for tests/net/crossed.sh.
check_PROGRAMS += tests/net/crossed
tests_net_crossed_SOURCES = tests/net/crossed.c tests/net/meet.c tests/net/meet.h
tests_net_crossed_LDADD = $(tools_libs)

# Memory that is taken back while the kernel has it, for tests/net/zerocopy.sh.
check_PROGRAMS += tests/net/lent
tests_net_lent_SOURCES = tests/net/lent.c tests/net/meet.c tests/net/meet.h
tests_net_lent_LDADD = $(tools_libs)

# A job of NCCL's, and the GPU for it.  NCCL looks up functions in the program itself.
check_PROGRAMS += tests/nccl/job
tests_nccl_job_SOURCES = \
	tests/nccl/cases_bench.c \
	tests/nccl/cases_faults.c \
	tests/nccl/cases_life.c \
	tests/nccl/cases_values.c \
	tests/nccl/gpu.c \
	tests/nccl/gpu.h \
	tests/nccl/gpu_mem.c \
	tests/nccl/gpu_stream.c \
	tests/nccl/job.c \
	tests/nccl/job.h \
	tests/nccl/job_rank.c \
	tests/nccl/kernel.c \
	tests/nccl/layout.c \
	tests/nccl/layout.h \
	tests/nccl/lead.c \
	tests/nccl/reduce.c \
	tests/nccl/ring.c \
	tests/nccl/ring.h \
	tests/nccl/values.c
tests_nccl_job_LDFLAGS = $(AM_LDFLAGS) -rdynamic -no-install
tests_nccl_job_LDADD = -ldl -lpthread -lm
dist_noinst_SCRIPTS += $(nccl_tests) tests/nccl/bench.sh
EXTRA_DIST += tests/nccl/lib.sh tests/nccl/one_abi.c

# -- make check -----------------------------------------------------------------------------------

check_PROGRAMS += $(fuzz_tests) $(sim_tests)
if WITH_UCX
# In place of the real library, which it calls: libucp.so.0 in tests/ucx/.libs.
check_LTLIBRARIES += tests/ucx/libucp.la
tests_ucx_libucp_la_SOURCES = tests/ucx/shim.c
tests_ucx_libucp_la_CPPFLAGS = $(AM_CPPFLAGS) $(UCX_CPPFLAGS)
tests_ucx_libucp_la_LDFLAGS = $(AM_LDFLAGS) -shared -version-info 0:0:0 -rpath /nowhere
tests_ucx_libucp_la_LIBADD = -ldl
ucx_programs = tests/ucx/test_tcp
endif

# A measurement, not a test: tests/bench/null [SECONDS [put]].
check_PROGRAMS += tests/bench/null
if HAVE_CMOCKA
check_PROGRAMS += $(unit_tests) $(abi_tests) $(rdma_programs) $(ucx_programs)
cmocka_tests = $(abi_tests) $(unit_tests)
else
cmocka_tests = tests/no-cmocka.sh
endif

dist_noinst_SCRIPTS += $(tidy_tests) $(net_tests) $(rdma_tests) $(ucx_tests) $(smc_tests) \
	$(fault_tests) $(cli_tests) $(vm_tests) \
	$(vm_smc_tests) tests/no-cmocka.sh tests/old-plugin tests/readme tests/packages/run tests/again tests/run tests/tap tests/count tests/coverage tests/fuzz/run \
	tests/vm/run tests/vm/init tests/vm/cases/bench.sh tests/vm/cases/compare-report.sh tests/bench/encrypt.sh tests/bench/threads.sh tests/ucx/bench.sh \
	tests/rdma/device.sh tests/ucx/device.sh tests/topo/mktree tests/gpu/run
EXTRA_DIST += tests/cli/tutorial.py tests/cli/metrics.py tests/site/pages.sh tests/site/look.py tests/browser/pages.sh tests/browser/look.py tests/browser/reports.py tests/cli/compare.json tests/cli/compare.txt $(recorded_machines) tests/doctor/healthy.txt tests/doctor/cases.bash tests/valgrind.supp \
	tests/cppcheck.supp tests/fuzz/corpus tests/net/fabric.sh tests/net/lib.sh tests/tidy/lib.sh \
	tests/rdma/lib.sh tests/rdma/suite.sh tests/ucx/lib.sh tests/ucx/shim.sh tests/smc/lib.sh tests/bench/figures.sh tests/vm/lib.sh \
	tests/vm/abi.sh tests/vm/rdma-faults.sh tests/vm/rdma-load.sh tests/vm/rdma-outage.sh \
	tests/vm/rdma-pair.sh tests/vm/modules tests/vm/dmesg.ok \
	tests/gpu/cases.py tests/gpu/collectives.py tests/gpu/faults.py tests/gpu/group.py tests/gpu/litmus.c \
	tests/gpu/litmus.cu tests/gpu/litmus.h tests/gpu/onesided.py tests/gpu/speed.py

# In this order: what is long does not come last, and alone.  When tests are run, what they need is
# built: make would look at these two files again, and programs wait for that until all scripts have
# begun.
check%TESTS: AM_MAKEFLAGS = -o config.h -o git-hash.h
# Those that take longest, and mostly wait, begin first.
TESTS = $(net_tests) $(rdma_tests) $(tidy_tests) $(cmocka_tests) $(fault_tests) $(nccl_quick_tests) $(cli_tests) \
	$(ucx_tests) $(smc_tests) $(fuzz_tests) $(sim_tests)

# Those that take half a minute and more, with all four jobs of a machine with two CPUs busy.
slow_tests = \
	tests/abi/test_fault \
	tests/abi/test_rdma_calls \
	tests/abi/test_rdma_faults \
	tests/abi/test_slow_nic \
	tests/cli/compare.bats \
	tests/cli/demo.bats \
	tests/cli/doctor.bats \
	tests/cli/examples.bats \
	tests/cli/exit.bats \
	tests/cli/perf.bats \
	tests/cli/stat.bats \
	tests/cli/tutorial.sh \
	tests/cli/validate.bats \
	tests/cli/validate_rma.bats \
	tests/faults/setup.sh \
	tests/faults/check.sh \
	tests/faults/heal.sh \
	tests/net/gid.sh \
	tests/net/hashed.sh \
	tests/net/ipv6.sh \
	tests/net/mesh.sh \
	tests/net/oneway.sh \
	tests/net/rails.sh \
	tests/net/unreachable.sh \
	tests/net/why.sh \
	tests/net/zerocopy.sh \
	tests/rdma/iwarp.sh \
	tests/rdma/roce2.sh \
	tests/scale/scale.sh \
	tests/smc/fallback.sh \
	tests/ucx/faults.sh \
	tests/ucx/shm.sh

# Both together are `make check`.
check-quick: all $(check_PROGRAMS) $(check_LTLIBRARIES)
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(filter-out $(slow_tests),$(TESTS))'
check-slow: all $(check_PROGRAMS) $(check_LTLIBRARIES)
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(filter $(slow_tests),$(TESTS))'
# How many programs check-quick leaves out.
count-slow:
	@echo $(words $(filter $(slow_tests),$(TESTS)))

TEST_EXTENSIONS = .sh .bats
TAP_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
LOG_DRIVER = $(TAP_DRIVER)
SH_LOG_DRIVER = $(TAP_DRIVER)
BATS_LOG_DRIVER = $(TAP_DRIVER)
LOG_COMPILER = $(SHELL) $(top_srcdir)/tests/tap
SH_LOG_COMPILER = $(LOG_COMPILER)
BATS_LOG_COMPILER = $(LOG_COMPILER)

AM_TESTS_ENVIRONMENT = \
	BRAID_TEST_PLUGIN='$(abs_top_builddir)/plugin/.libs/libnccl-net-braid.so'; \
	BRAID_TEST_BRAID='$(abs_top_builddir)/braid'; \
	BRAID_TEST_SRCDIR='$(abs_top_srcdir)'; \
	BRAID_TEST_BUILDDIR='$(abs_top_builddir)'; \
	BRAID_TEST_SANITIZER='$(SANITIZER)'; \
	BRAID_TEST_CC='$(CC)'; \
	export BRAID_TEST_PLUGIN BRAID_TEST_BRAID BRAID_TEST_SRCDIR BRAID_TEST_BUILDDIR \
		BRAID_TEST_SANITIZER BRAID_TEST_CC;

# One kind of test alone.
check-unit: all
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(unit_tests)'
check-abi: all
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(abi_tests)'
check-fuzz: all
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(fuzz_tests)'
check-tidy: all
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(tidy_tests)'
check-net: all
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(net_tests)'
# The same over NICs that exist in memory only, through every ABI version.
check-rdma: all
	BRAID_TEST_ALL=1 BRAID_TEST_FILTER=$${BRAID_TEST_FILTER:-*} BRAID_TEST_TIMEOUT=$${BRAID_TEST_TIMEOUT:-1200} \
		$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(rdma_tests)'
# The same over UCX.
check-ucx: all
	BRAID_TEST_ALL=1 BRAID_TEST_FILTER=$${BRAID_TEST_FILTER:-*} BRAID_TEST_TIMEOUT=$${BRAID_TEST_TIMEOUT:-1200} \
		$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(ucx_tests)'
# The same over SMC, of a fake kernel.
check-smc: all $(check_LTLIBRARIES)
	BRAID_TEST_ALL=1 BRAID_TEST_FILTER=$${BRAID_TEST_FILTER:-*} BRAID_TEST_TIMEOUT=$${BRAID_TEST_TIMEOUT:-1200} \
		$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(smc_tests)'
check-faults: all tests/faults/faults
	BRAID_TEST_ALL=1 BRAID_TEST_TIMEOUT=$${BRAID_TEST_TIMEOUT:-1200} $(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(fault_tests)'
# NCCL's own library: make check-nccl LIBNCCL=/path/libnccl.so.2 for another.
check-nccl: all tests/nccl/job $(check_LTLIBRARIES)
	BRAID_TEST_TIMEOUT=$${BRAID_TEST_TIMEOUT:-600} $(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(nccl_tests)'
check-cli: all $(check_LTLIBRARIES)
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(cli_tests)'
# Pages in a browser, which are pictures for a person too: browser/*.png.
check-browser: all
	BRAID_TEST_PICTURES='$(abs_top_builddir)/browser' BRAID_TEST_TIMEOUT=$${BRAID_TEST_TIMEOUT:-300} \
		$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS=tests/browser/pages.sh
# The documents as a site (make docs), and every link of it.
check-site: all
	BRAID_TEST_TIMEOUT=$${BRAID_TEST_TIMEOUT:-300} \
		$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS=tests/site/pages.sh

# This build and the plugin of an older commit talk to each other over TCP: make check-old-new OLD=COMMIT.
# The older one is built in old/COMMIT; BRAID_TEST_OLD=PATH names one that is there.
OLD = 244f140
check-old-new: all
	old=$${BRAID_TEST_OLD:-$$($(SHELL) $(srcdir)/tests/old-plugin $(OLD) '$(abs_top_builddir)/old')} && \
		BRAID_TEST_OLD=$$old $(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS=tests/abi/test_old_new

# The same over a NIC, and also to another host: make check-device DEV=mlx5_0 [PEER=HOST:PORT].
check-device: all
	BRAID_TEST_TIMEOUT=$${BRAID_TEST_TIMEOUT:-1200} DEV='$(DEV)' PEER='$(PEER)' \
		$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS=tests/rdma/device.sh

# Packages, in a bare Debian 12 and 13: make check-packages CACHE=DIR keeps what debootstrap makes.
check-packages: dist
	$(srcdir)/tests/packages/run $(distdir).tar.gz $(CACHE) || test $$? = 77

# For ThreadSanitizer: programs with threads, without those in which a data race is wanted.  test_order
# reads while the plugin writes, as a GPU would; a fake NIC writes what the others read.
check-threads: all
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS \
		TESTS='$(filter-out tests/abi/test_order tests/abi/test_ports tests/abi/test_rma tests/abi/test_rma_fault $(rdma_fault_tests) $(gpu_tests),$(unit_tests) $(abi_tests))'

# make check-valgrind VALGRIND_TESTS='tests/abi/test_x' for another choice.
# test_copy single-steps a child, which valgrind can't.
VALGRIND_TESTS = $(filter-out tests/unit/test_copy,$(unit_tests))
VALGRIND_FLAGS = --quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite \
	--show-leak-kinds=definite --suppressions=$(abs_top_srcdir)/tests/valgrind.supp
check-valgrind: all
	@test '$(VALGRIND)' != no || { echo 'valgrind is not installed'; exit 1; }
	@test -z '$(SANITIZER)' || { echo 'valgrind cannot run a sanitizer build'; exit 1; }
	BRAID_TEST_WRAP='$(VALGRIND) $(VALGRIND_FLAGS)' BRAID_TEST_SLOW=$${BRAID_TEST_SLOW:-20} \
		$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(VALGRIND_TESTS)'

# -- soaking --------------------------------------------------------------------------------------

# make soak-sim SEEDS=1000000 SEED=1000: the simulator, from that seed on.
SEEDS = 100000
SEED = 1
soak-sim: all tests/sim/test_sim tests/sim/node.la
	tests/sim/test_sim -n $(SEEDS) -s $(SEED)
# The same with one-sided operations.
soak-sim-rma: all tests/sim/test_sim tests/sim/node.la
	tests/sim/test_sim -r -n $(SEEDS) -s $(SEED)

# Hours: make soak-faults SOAK_FAULTS='--rows F27' for fewer.  What came of each run lies in
# soak-faults.json, in soak-onesided.json with puts instead of messages, and in soak-heal.json.
soak-faults: all tests/faults/faults
	tests/faults/faults --plugin '$(abs_top_builddir)/plugin/.libs/libnccl-net-braid.so' \
		--soak --seeds 20 --jobs 2 --json soak-faults.json $(SOAK_FAULTS)
	tests/faults/faults --plugin '$(abs_top_builddir)/plugin/.libs/libnccl-net-braid.so' --one-sided \
		--soak --seeds 20 --jobs 2 --json soak-onesided.json $(SOAK_FAULTS)
	tests/faults/faults --plugin '$(abs_top_builddir)/plugin/.libs/libnccl-net-braid.so' --heal \
		--flaps 1000 --json soak-heal.json $(SOAK_FAULTS)
soak: soak-sim soak-sim-rma soak-faults

# -- virtual machines -----------------------------------------------------------------------------

# make vm VM_TESTS=tests/vm/cases/x.sh for some of them.  One at a time: they take all CPUs.
VM_TESTS = $(vm_tests)
vm_programs = tests/faults/faults tests/net/lent
if HAVE_CMOCKA
vm_programs += $(abi_tests)
endif
vm: all $(vm_programs)
	@$(AM_TESTS_ENVIRONMENT) $(srcdir)/tests/vm/run --prepare || test $$? = 77
	@rm -f tests/vm/cases/*.trs
	@rc=0; BRAID_TEST_TIMEOUT=$${BRAID_TEST_TIMEOUT:-1260} $(MAKE) $(AM_MAKEFLAGS) -j1 check-TESTS \
		check_PROGRAMS= check_LTLIBRARIES= TESTS='$(VM_TESTS)' || rc=1; \
	$(SHELL) $(top_srcdir)/tests/count tests/vm || :; exit $$rc

vm-smc: all
	$(MAKE) $(AM_MAKEFLAGS) vm VM_TESTS='$(vm_smc_tests)'

# NCCL's AllReduce over Braid beside its own Socket; it only prints.
bench-nccl: all tests/nccl/job
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/tests/nccl/bench.sh

# Braid beside perftest on emulated RDMA devices; it only prints.
ucx-bench: all
	@$(AM_TESTS_ENVIRONMENT) $(srcdir)/tests/ucx/bench.sh
# What encryption and checksums cost over TCP; it only prints.
encrypt-bench: all
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/tests/bench/encrypt.sh
# What threads of BRAID_THREADS bring, on a machine with at least 8 CPUs; it only prints.
bench-threads: all
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/tests/bench/threads.sh
vm-bench: all
	@$(AM_TESTS_ENVIRONMENT) $(srcdir)/tests/vm/cases/bench.sh
vm-compare: all
	@$(AM_TESTS_ENVIRONMENT) $(srcdir)/tests/vm/cases/compare-report.sh

# -- fuzzing, coverage, lint ----------------------------------------------------------------------

# make fuzz FUZZ_S=300: seconds for each target.  What is found lies in fuzz-out/.
FUZZ_S = 60
fuzz: all $(fuzz_tests)
if FUZZ
	BRAID_TEST_SRCDIR='$(abs_top_srcdir)' $(SHELL) $(srcdir)/tests/fuzz/run $(FUZZ_S) $(fuzz_tests)
else
	@echo 'configure with CC=clang --enable-fuzz first'; exit 1
endif
clean-local:
	rm -f soak-faults.json soak-onesided.json
	rm -rf fuzz-out old packages site vm

coverage: check
if COVERAGE
	$(SHELL) $(srcdir)/tests/coverage
else
	@echo 'configure with --enable-coverage first'; exit 1
endif

# What of these is installed; any complaint fails.
lint: $(nodist_man_MANS)
	@rc=0; cd $(srcdir); \
	if command -v cppcheck >/dev/null; then \
		echo cppcheck; \
		cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr -j2 -I. \
			--enable=warning,portability --suppress=missingIncludeSystem \
			--library=posix,gnu --platform=unix64 -D__linux__ -D__x86_64__ \
			-D__LP64__ --suppressions-list=tests/cppcheck.supp $(lint_dirs) || rc=1; \
	else echo 'cppcheck: not installed'; fi; \
	if command -v shellcheck >/dev/null; then \
		echo shellcheck; \
		shellcheck -x -S warning `grep -lE '^#!/bin/(sh|bash)|^#!/usr/bin/env bash' $(lint_scripts) 2>/dev/null` \
			|| rc=1; \
	else echo 'shellcheck: not installed'; fi; \
	if command -v mandoc >/dev/null; then \
		echo 'mandoc -Tlint'; \
		cd $(abs_top_builddir) && mandoc -Tlint -Wwarning $(nodist_man_MANS) || rc=1; \
	else echo 'mandoc: not installed'; fi; \
	exit $$rc
lint_dirs = plugin core gdr verbs socket topo tools
lint_scripts = autogen.sh .ci/run tools/* tests/* tests/*/* tests/vm/cases/*

.PHONY: check-quick check-slow count-slow check-browser check-site bench-nccl check-packages check-device check-unit check-abi check-fuzz check-tidy check-net check-cli check-faults check-rdma check-ucx check-smc check-nccl check-old-new check-threads \
	check-valgrind vm vm-bench vm-compare vm-smc fuzz coverage lint soak soak-sim soak-sim-rma \
	soak-faults
