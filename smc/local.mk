# SPDX-License-Identifier: BSD-3-Clause
libbraid_core_a_SOURCES += \
	smc/conn.h \
	smc/diag.c \
	smc/diag.h \
	smc/setup.c \
	smc/smc.c \
	smc/sock.c
