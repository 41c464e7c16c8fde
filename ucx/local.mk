# SPDX-License-Identifier: BSD-3-Clause
if WITH_UCX
libbraid_core_a_SOURCES += \
	ucx/ep.c \
	ucx/ep.h \
	ucx/exit.c \
	ucx/gpu.c \
	ucx/lib.c \
	ucx/lib.h \
	ucx/msg.c \
	ucx/port.c \
	ucx/port.h \
	ucx/rx.c \
	ucx/setup.c \
	ucx/tx.c \
	ucx/ucx.c
endif
