# SPDX-License-Identifier: BSD-3-Clause
libbraid_core_a_SOURCES += \
	socket/ktls.c \
	socket/ktls.h \
	socket/sealed.c \
	socket/sealed.h \
	socket/socket.c \
	socket/stream.c \
	socket/stream.h \
	socket/zerocopy.c \
	socket/zerocopy.h
