/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mend.c - lines that mend: by the package manager, in a container's start, or in the environment.
 *
 * A variable that a file sets is mended in that file, for `unset` would not change it.
 */
#include "config.h"

#include <string.h>

#include "tools/doctor/doctor.h"

bool doctor_in_container(struct doctor *d)
{
	return sys_has(d, "/.dockerenv") || sys_has(d, "/run/.containerenv") ||
	       env_get(d, "KUBERNETES_SERVICE_HOST");
}

void doctor_mend_container(struct doctor *d, const char *docker, const char *pod)
{
	if (env_get(d, "KUBERNETES_SERVICE_HOST"))
		doctor_mend(d, "kubectl edit deployment NAME   # or what else makes the pod: %s",
			    pod);
	else
		doctor_mend(d, "docker run %s", docker);
}

void doctor_mend_install(struct doctor *d, const char *deb, const char *rpm)
{
	if (sys_has(d, "/etc/redhat-release"))
		doctor_mend(d, "sudo dnf install %s", rpm);
	else
		doctor_mend(d, "sudo apt-get install %s", deb);
}

/* Only root may change the system's files. */
static const char *sudo_for(const char *file)
{
	return strncmp(file, "/etc/", 5) == 0 ? "sudo " : "";
}

static bool is_plain(const char *value)
{
	return value[strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
			    "_.,:=^+-/@%")] == '\0';
}

void doctor_mend_rename(struct doctor *d, const char *name, const char *right, const char *value)
{
	const struct env *e = env_find(d, name);

	if (value && strpbrk(value, "'\\|&"))		/* useless, and unsafe in a shell */
		value = NULL;
	if (e && e->file && value)
		doctor_mend(d, "%ssed -i 's|^%s=.*|%s=%s|' %s   # line %u", sudo_for(e->file), name,
			    right, value, e->file, e->line);
	else if (e && e->file)
		doctor_mend(d, "%ssed -i '/^%s=/d' %s   # line %u", sudo_for(e->file), name,
			    e->file, e->line);
	else if (!value)
		doctor_mend(d, "unset %s", name);
	else if (strcmp(name, right) != 0)
		doctor_mend(d, "unset %s; export %s='%s'", name, right, value);
	else
		doctor_mend(d, is_plain(value) ? "export %s=%s" : "export %s='%s'", name, value);
}

void doctor_mend_set(struct doctor *d, const char *name, const char *value)
{
	doctor_mend_rename(d, name, name, value);
}
