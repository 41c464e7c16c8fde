#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# pxn.sh - two GPUs on each host, joined by NVLink, and a NIC near one of them: NCCL sends the other
# GPU's data through the proxy of the GPU near the NIC (PXN).  One process has both GPUs of a host.
# shellcheck source=tests/nccl/lib.sh
. "$(dirname "$0")/lib.sh"

fake=$build/tests/fake/.libs
[ -e "$fake/libibverbs.so.1" ] || skip "built without RDMA"

switch()			# BUSID
{
	echo "<pci busid=\"$1\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
}

gpu()				# BUSID DEVICE PEER
{
	echo "<pci busid=\"$1\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
	echo "<gpu dev=\"$2\" sm=\"80\"><nvlink target=\"$3\" count=\"12\" tclass=\"0x030200\"/></gpu></pci>"
}

{
	echo '<system version="1">'
	echo '<cpu numaid="0" affinity="3" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">'
	switch 0000:30:00.0
	gpu 0000:40:00.0 0 0000:41:00.0
	echo '<pci busid="0000:31:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="16">'
	echo '<nic><net name="ib0:1" dev="0" speed="100000" port="1" guid="0x1" maxconn="64" gdr="1"/>'
	echo '</nic></pci></pci>'
	switch 0000:50:00.0
	gpu 0000:41:00.0 1 0000:40:00.0
	echo '</pci></cpu></system>'
} >"$tmp/topology.xml"

export LD_LIBRARY_PATH="$build/tests/fakecuda/.libs:$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export BRAID_TEST_FAKE_FABRIC="$tmp/fabric" BRAID_TEST_FAKE_DEVICES="ib0:ib,dmabuf=1"
export BRAID_TEST_GPU_FAKECUDA=1 BRAID_TEST_GPU_PEERS=1
export NCCL_TOPO_FILE="$tmp/topology.xml" NCCL_P2P_DISABLE=0 NCCL_DEBUG=INFO
BRAID_TEST_NCCL_SAYS="PXN 1 GDR 1" "$job" --ranks 4 --threads 2 --label "PXN: " types soak
