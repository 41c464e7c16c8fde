# SPDX-License-Identifier: BSD-3-Clause
libbraid_core_la_SOURCES += \
	socket/sealed.c \
	socket/sealed.h \
	socket/socket.c \
	socket/stream.c \
	socket/stream.h
