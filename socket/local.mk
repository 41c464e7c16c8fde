# SPDX-License-Identifier: BSD-3-Clause
libbraid_core_la_SOURCES += \
	socket/socket.c \
	socket/stream.c \
	socket/stream.h
