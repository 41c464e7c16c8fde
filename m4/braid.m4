# SPDX-License-Identifier: BSD-3-Clause

# BRAID_CFLAGS_IF(VARIABLE, FLAGS)
# Append to VARIABLE each of FLAGS that the compiler takes without a word.
AC_DEFUN([BRAID_CFLAGS_IF], [
for braid_flag in $2; do
  AS_VAR_PUSHDEF([braid_cache], [braid_cv_cflag_$braid_flag])
  AC_CACHE_CHECK([whether $CC takes $braid_flag], [braid_cache], [
    braid_saved_CFLAGS=$CFLAGS
    CFLAGS="-Werror $braid_flag"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM()],
      [AS_VAR_SET([braid_cache], [yes])], [AS_VAR_SET([braid_cache], [no])])
    CFLAGS=$braid_saved_CFLAGS
  ])
  AS_VAR_IF([braid_cache], [yes], [AS_VAR_APPEND([$1], [" $braid_flag"])])
  AS_VAR_POPDEF([braid_cache])
done
])

# BRAID_WITH(NAME, WHAT, HEADER..., [LIB, STATEMENT])
# --with-NAME=PATH|no for something that is loaded at run time, so that only its headers matter
# here; or, with LIB, that is linked: STATEMENT must compile and link.  Used where found, an error
# where asked for and not found.  Sets with_NAME (yes or no), why_NAME (for the summary),
# NAME_CPPFLAGS and NAME_LIBS, and defines HAVE_NAME.
AC_DEFUN([BRAID_WITH], [
AC_ARG_WITH([$1],
  [AS_HELP_STRING([--with-$1=PATH], [$2 from PATH; "no": leave it out @<:@if found@:>@])],
  [], [with_$1=auto])
braid_path=
AS_CASE([$with_$1],
  [no], [why_$1="not wanted"],
  [yes|auto], [],
  [braid_path=$with_$1])
AS_IF([test "x$with_$1" != xno], [
  braid_found=yes
  braid_saved_CPPFLAGS=$CPPFLAGS
  m4_toupper([$1])_CPPFLAGS=
  AS_IF([test -n "$braid_path"], [m4_toupper([$1])_CPPFLAGS="-I$braid_path/include"])
  CPPFLAGS="$CPPFLAGS $m4_toupper([$1])_CPPFLAGS"
  for braid_header in $3; do
    AS_IF([test "$braid_found" = yes && test -n "$braid_path" &&
        test ! -f "$braid_path/include/$braid_header"], [
      braid_found=no
      why_$1="$braid_path/include/$braid_header not found"])
    AS_IF([test "$braid_found" = yes], [
      AC_MSG_CHECKING([for $braid_header])
      AC_COMPILE_IFELSE([AC_LANG_SOURCE([[#include <]]$braid_header[[>]])],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         braid_found=no
         why_$1="$braid_header not found"])
    ])
  done
  m4_ifval([$4], [AS_IF([test "$braid_found" = yes], [
    m4_toupper([$1])_LIBS="${braid_path:+-L$braid_path/lib }-l$4"
    braid_saved_LIBS=$LIBS
    LIBS="$m4_toupper([$1])_LIBS $LIBS"
    AC_MSG_CHECKING([for $2 in -l$4])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <]$3[>]], [[$5]])],
      [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       braid_found=no
       why_$1="$2 not found"])
    LIBS=$braid_saved_LIBS
  ])])
  CPPFLAGS=$braid_saved_CPPFLAGS
  AS_IF([test "$braid_found" = yes], [
    with_$1=yes
    why_$1=${braid_path:-"system headers"}
    AC_DEFINE([HAVE_]m4_toupper([$1]), [1], [Define to 1 if the headers of $2 are there.])
  ], [
    AS_IF([test "x$with_$1" != xauto], [AC_MSG_ERROR([--with-$1: $why_$1])])
    with_$1=no
    m4_toupper([$1])_CPPFLAGS=
    m4_toupper([$1])_LIBS=
  ])
])
AC_SUBST(m4_toupper([$1])_CPPFLAGS)
AC_SUBST(m4_toupper([$1])_LIBS)
])

# BRAID_SODIUM
# libsodium goes into the plugin itself: the .so is one file to copy and needs libc alone.
AC_DEFUN([BRAID_SODIUM], [
AC_ARG_WITH([sodium],
  [AS_HELP_STRING([--with-sodium=PATH], [libsodium.a and sodium.h from PATH])],
  [], [with_sodium=yes])
AS_IF([test "x$with_sodium" = xno],
  [AC_MSG_ERROR([libsodium is not optional: it authenticates every connection])])
AC_MSG_CHECKING([for libsodium.a])
SODIUM_CPPFLAGS=
sodium_a=
AS_IF([test "x$with_sodium" = xyes], [
  sodium_a=`$CC $CFLAGS -print-file-name=libsodium.a`
], [
  SODIUM_CPPFLAGS="-I$with_sodium/include"
  for braid_dir in "$with_sodium/lib" "$with_sodium/lib64" "$with_sodium"; do
    AS_IF([test -z "$sodium_a" && test -f "$braid_dir/libsodium.a"],
      [sodium_a=$braid_dir/libsodium.a])
  done
])
AS_IF([test -n "$sodium_a" && test -f "$sodium_a"], [AC_MSG_RESULT([$sodium_a])], [
  AC_MSG_RESULT([no])
  AC_MSG_ERROR([libsodium.a not found (Debian: libsodium-dev; Rocky: libsodium-static)])
])

# Debian builds it -fPIE, not -fPIC: enough once --exclude-libs has made its symbols local.
AC_MSG_CHECKING([whether it can be linked into a shared object])
braid_saved_CPPFLAGS=$CPPFLAGS braid_saved_CFLAGS=$CFLAGS
braid_saved_LDFLAGS=$LDFLAGS braid_saved_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $SODIUM_CPPFLAGS"
CFLAGS="$CFLAGS -fPIC"
LDFLAGS="$LDFLAGS -shared -Wl,-z,defs -Wl,--exclude-libs,ALL"
LIBS=$sodium_a
AC_LINK_IFELSE([AC_LANG_SOURCE([[
#include <sodium.h>
int f(void);
int f(void)
{
	unsigned char b[crypto_generichash_BYTES] = { 0 };

	randombytes_buf(b, sizeof(b));
	return sodium_init() | crypto_generichash(b, sizeof(b), b, sizeof(b), b, sizeof(b));
}
]])], [AC_MSG_RESULT([yes])], [
  AC_MSG_RESULT([no])
  AC_MSG_ERROR([$sodium_a is not usable: see config.log; was it built with -fPIC or -fPIE?])
])
CPPFLAGS=$braid_saved_CPPFLAGS CFLAGS=$braid_saved_CFLAGS
LDFLAGS=$braid_saved_LDFLAGS LIBS=$braid_saved_LIBS

SODIUM_LIBS=$sodium_a
# For the plugin as a linker flag: libtool warns about a static archive in a shared object, which
# is what is wanted here.
SODIUM_MODULE_LIBS="-Wl,$sodium_a"
AC_SUBST([SODIUM_CPPFLAGS])
AC_SUBST([SODIUM_LIBS])
AC_SUBST([SODIUM_MODULE_LIBS])
])
