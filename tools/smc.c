/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * smc.c - `braid smc`: what the kernel's SMC has, and what it lacks; `braid smc setup` adds it.
 *
 * The kernel reports and changes SMC's state by generic netlink (linux/smc.h).  The command uses
 * libnl for that, which the plugin does not.  Facts go into one JSON document, from which the text
 * is printed.
 */
#include "config.h"
#include "tools/smc.h"

#include <linux/smc.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/opt.h"

#ifdef HAVE_LIBNL
#include <netlink/errno.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#endif

#ifndef AF_SMC
#define AF_SMC 43
#endif

struct setup {
	const char *ueid, *pnetid, *net, *ib;
	int port;
};

/* -- asking ------------------------------------------------------------------------------- */

#ifdef HAVE_LIBNL

enum { ATTRIBUTES = 16 };		/* more than any of these messages has */

/* Makes a row of one message of a dump; NULL: no row. */
typedef json_t *row_fn(struct nlattr **at);

struct dump {
	json_t *list;
	row_fn *row;
	int nest;			/* the attribute that holds all others; 0: none */
};

/* An attribute's text; "" if the kernel gives none. */
static const char *text(struct nlattr *a)
{
	const char *s = a ? nla_get_string(a) : "";

	return strcmp(s, "n/a") ? s : "";
}

/* An attribute's text, without the blanks with which the kernel pads it. */
static json_t *trimmed(struct nlattr *a)
{
	const char *s = text(a);
	size_t n = strlen(s);

	while (n && s[n - 1] == ' ')
		n--;
	return json_stringn(s, n);
}

static unsigned number8(struct nlattr *a)
{
	return a ? nla_get_u8(a) : 0;
}

static int add_entry(struct nl_msg *msg, void *arg)
{
	struct dump *d = arg;
	struct nlattr *at[ATTRIBUTES] = { NULL }, *in[ATTRIBUTES] = { NULL };
	json_t *o;

	if (genlmsg_parse(nlmsg_hdr(msg), 0, at, ATTRIBUTES - 1, NULL))
		return NL_SKIP;
	if (d->nest && (!at[d->nest] || nla_parse_nested(in, ATTRIBUTES - 1, at[d->nest], NULL)))
		return NL_SKIP;
	o = d->row(d->nest ? in : at);
	if (o)
		json_array_append_new(d->list, o);
	return NL_OK;
}

/* The rows that the kernel answers a command with; an empty list if it can't be asked. */
static json_t *dump(struct nl_sock *nl, const char *family, uint8_t cmd, int nest, row_fn *row)
{
	struct dump d = { .list = json_array(), .row = row, .nest = nest };
	int id = genl_ctrl_resolve(nl, family);

	if (id < 0)
		return d.list;
	nl_socket_modify_cb(nl, NL_CB_VALID, NL_CB_CUSTOM, add_entry, &d);
	if (genl_send_simple(nl, id, cmd, 1, NLM_F_DUMP) >= 0)
		nl_recvmsgs_default(nl);
	return d.list;
}

static json_t *ueid_row(struct nlattr **at)
{
	return trimmed(at[SMC_NLA_EID_TABLE_ENTRY]);
}

static json_t *pnetid_row(struct nlattr **at)
{
	return json_pack("{s:o, s:s, s:s, s:i}", "name", trimmed(at[SMC_PNETID_NAME]), "net",
			 text(at[SMC_PNETID_ETHNAME]), "ib", text(at[SMC_PNETID_IBNAME]), "port",
			 number8(at[SMC_PNETID_IBPORT]));
}

static json_t *system_row(struct nlattr **at)
{
	return json_pack("{s:i, s:b}", "version", number8(at[SMC_NLA_SYS_VER]), "v2",
			 number8(at[SMC_NLA_SYS_IS_SMCR_V2]));
}

static json_t *group_row(struct nlattr **at)
{
	struct nlattr *v2[ATTRIBUTES] = { NULL };

	if (at[SMC_NLA_LGR_R_V2_COMMON])
		nla_parse_nested(v2, ATTRIBUTES - 1, at[SMC_NLA_LGR_R_V2_COMMON], NULL);
	return json_pack("{s:i, s:s, s:o, s:i, s:o, s:o}", "id",
			 at[SMC_NLA_LGR_R_ID] ? nla_get_u32(at[SMC_NLA_LGR_R_ID]) : 0, "role",
			 number8(at[SMC_NLA_LGR_R_ROLE]) ? "server" : "client", "pnetid",
			 trimmed(at[SMC_NLA_LGR_R_PNETID]), "connections",
			 at[SMC_NLA_LGR_R_CONNS_NUM] ? nla_get_u32(at[SMC_NLA_LGR_R_CONNS_NUM]) : 0,
			 "ueid", trimmed(v2[SMC_NLA_LGR_V2_NEG_EID]), "peer",
			 trimmed(v2[SMC_NLA_LGR_V2_PEER_HOST]));
}

static json_t *port_json(struct nlattr *port, int number)
{
	struct nlattr *at[ATTRIBUTES] = { NULL };
	char net[IF_NAMESIZE] = "";

	nla_parse_nested(at, ATTRIBUTES - 1, port, NULL);
	if (at[SMC_NLA_DEV_PORT_NETDEV])
		if_indextoname(nla_get_u32(at[SMC_NLA_DEV_PORT_NETDEV]), net);
	return json_pack("{s:i, s:o, s:s, s:b}", "port", number, "pnetid",
			 trimmed(at[SMC_NLA_DEV_PORT_PNETID]), "net", net, "up",
			 number8(at[SMC_NLA_DEV_PORT_STATE]));
}

static json_t *device_row(struct nlattr **at)
{
	json_t *ports = json_array();

	for (int i = 0; i < 2; i++) {
		struct nlattr *port = at[SMC_NLA_DEV_PORT + i];

		if (port)
			json_array_append_new(ports, port_json(port, i + 1));
	}
	return json_pack("{s:s, s:o}", "name", text(at[SMC_NLA_DEV_IB_NAME]), "ports", ports);
}

static void add_smc(json_t *o)
{
	struct nl_sock *nl = nl_socket_alloc();
	json_t *system;

	if (!nl || genl_connect(nl)) {
		json_object_set_new(o, "why", json_string("generic netlink can't be had"));
		nl_socket_free(nl);
		return;
	}
	system = dump(nl, SMC_GENL_FAMILY_NAME, SMC_NETLINK_GET_SYS_INFO, SMC_GEN_SYS_INFO,
		      system_row);
	json_object_update(o, json_array_get(system, 0));
	json_decref(system);
	json_object_set_new(o, "ueids", dump(nl, SMC_GENL_FAMILY_NAME, SMC_NETLINK_DUMP_UEID, 0,
					     ueid_row));
	json_object_set_new(o, "pnetids", dump(nl, SMCR_GENL_FAMILY_NAME, SMC_PNETID_GET, 0,
					       pnetid_row));
	json_object_set_new(o, "devices", dump(nl, SMC_GENL_FAMILY_NAME, SMC_NETLINK_GET_DEV_SMCR,
					       SMC_GEN_DEV_SMCR, device_row));
	json_object_set_new(o, "groups", dump(nl, SMC_GENL_FAMILY_NAME, SMC_NETLINK_GET_LGR_SMCR,
					      SMC_GEN_LGR_SMCR, group_row));
	nl_socket_free(nl);
}

/* -- setting up --------------------------------------------------------------------------- */

static int send_setup(struct nl_sock *nl, const char *family, uint8_t cmd, const struct setup *s)
{
	char padded[SMC_MAX_EID_LEN + 1];
	struct nl_msg *msg = nlmsg_alloc();
	int id = genl_ctrl_resolve(nl, family), err = id;

	if (id >= 0 && msg && genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, id, 0, 0, cmd, 1)) {
		if (cmd == SMC_NETLINK_ADD_UEID) {
			snprintf(padded, sizeof(padded), "%-*s", SMC_MAX_EID_LEN, s->ueid);
			nla_put_string(msg, SMC_NLA_EID_TABLE_ENTRY, padded);
		} else {
			nla_put_string(msg, SMC_PNETID_NAME, s->pnetid);
			if (s->net)
				nla_put_string(msg, SMC_PNETID_ETHNAME, s->net);
			if (s->ib) {
				nla_put_string(msg, SMC_PNETID_IBNAME, s->ib);
				nla_put_u8(msg, SMC_PNETID_IBPORT, (uint8_t)s->port);
			}
		}
		err = nl_send_auto(nl, msg);
		if (err >= 0)
			err = nl_wait_for_ack(nl);
	}
	nlmsg_free(msg);
	return err < 0 ? err : 0;
}

static int complain(const char *what, int err)
{
	if (err == -NLE_OBJ_NOTFOUND)
		return opt_fail("braid smc setup", "[smc-refused]", "%s: this kernel has no SMC, "
				"or its module is not loaded: modprobe smc", what);
	return opt_fail("braid smc setup", "[smc-refused]", "%s: %s%s", what, nl_geterror(err),
			geteuid() ? "; it is for root" : "");
}

/* An entry that exists already is no error. */
static int set_up(const struct setup *s)
{
	struct nl_sock *nl = nl_socket_alloc();
	int err = nl ? genl_connect(nl) : -NLE_NOMEM;

	if (err < 0) {
		nl_socket_free(nl);
		return complain("generic netlink", err);
	}
	if (s->ueid) {
		err = send_setup(nl, SMC_GENL_FAMILY_NAME, SMC_NETLINK_ADD_UEID, s);
		if (err && err != -NLE_EXIST)
			complain("the UEID", err);
	}
	if (s->pnetid && (!err || err == -NLE_EXIST)) {
		err = send_setup(nl, SMCR_GENL_FAMILY_NAME, SMC_PNETID_ADD, s);
		if (err && err != -NLE_EXIST)
			complain("the pnetid", err);
	}
	nl_socket_free(nl);
	return err && err != -NLE_EXIST;
}

#else

static void add_smc(json_t *o)
{
	json_object_set_new(o, "why", json_string("this braid was built without libnl"));
}

static int set_up(const struct setup *s)
{
	(void)s;
	return opt_fail("braid smc setup", "[no-libnl]", "this braid was built without libnl");
}

#endif

/* -- what is missing ---------------------------------------------------------------------- */

static json_t *sysctl(const char *name)
{
	char path[64];
	long long n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/sys/net/smc/%s", name);
	f = fopen(path, "re");
	if (!f)
		return json_null();
	if (fscanf(f, "%lld", &n) != 1)
		n = 0;
	fclose(f);
	return json_integer(n);
}

static const char *string_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void add_text(json_t *list, const char *what)
{
	json_array_append_new(list, json_string(what));
}

/* A pnetid is needed where the driver does not name the interface of a port. */
static void missing_of_device(const json_t *dev, json_t *list)
{
	const char *name = string_of(dev, "name");
	char what[256];
	json_t *p;
	size_t i;

	json_array_foreach(json_object_get(dev, "ports"), i, p) {
		int port = (int)json_integer_value(json_object_get(p, "port"));

		if (*string_of(p, "pnetid") || *string_of(p, "net"))
			continue;
		snprintf(what, sizeof(what),
			 "%s port %d has no pnetid, and the kernel knows no interface of it: braid "
			 "smc setup --pnetid NAME --net INTERFACE --ib %s --port %d",
			 name, port, name, port);
		add_text(list, what);
	}
}

static json_t *missing(const json_t *o)
{
	const json_t *devices = json_object_get(o, "devices");
	json_t *list = json_array(), *dev;
	size_t i;

	if (!json_is_true(json_object_get(o, "kernel"))) {
		add_text(list, "the kernel has no SMC: modprobe smc smc_diag");
		return list;
	}
	if (json_object_get(o, "why"))
		return list;
	if (!json_array_size(devices))
		add_text(list, "SMC-R has no RDMA device: see rdma link");
	if (!json_array_size(json_object_get(o, "ueids")))
		add_text(list, "SMC-R version 2 needs a UEID, the same on both hosts: "
			 "braid smc setup --ueid NAME");
	json_array_foreach(devices, i, dev)
		missing_of_device(dev, list);
	return list;
}

json_t *smc_json(void)
{
	int fd = socket(AF_SMC, SOCK_STREAM | SOCK_CLOEXEC, 0);
	json_t *o = json_pack("{s:b, s:o, s:o}", "kernel", fd >= 0, "wmem", sysctl("wmem"), "rmem",
			      sysctl("rmem"));

	if (fd >= 0) {
		close(fd);
		add_smc(o);
	}
	json_object_set_new(o, "missing", missing(o));
	return o;
}

/* -- the text ----------------------------------------------------------------------------- */

static void print_ports(const json_t *dev)
{
	json_t *p;
	size_t i;

	json_array_foreach(json_object_get(dev, "ports"), i, p)
		printf("  device     %s port %lld, %s, interface %s, pnetid %s\n",
		       string_of(dev, "name"),
		       (long long)json_integer_value(json_object_get(p, "port")),
		       json_is_true(json_object_get(p, "up")) ? "up" : "down",
		       *string_of(p, "net") ? string_of(p, "net") : "not known",
		       *string_of(p, "pnetid") ? string_of(p, "pnetid") : "none");
}

void smc_print(const json_t *o)
{
	json_t *x;
	size_t i;

	printf("SMC        %s\n", json_is_true(json_object_get(o, "kernel")) ?
	       json_is_true(json_object_get(o, "v2")) ? "in the kernel, SMC-R version 2" :
	       "in the kernel" : "not in the kernel");
	if (json_is_integer(json_object_get(o, "wmem")))
		printf("  buffers    %lld B to send, %lld B to receive, each connection\n",
		       (long long)json_integer_value(json_object_get(o, "wmem")),
		       (long long)json_integer_value(json_object_get(o, "rmem")));
	json_array_foreach(json_object_get(o, "ueids"), i, x)
		printf("  UEID       %s\n", json_string_value(x));
	json_array_foreach(json_object_get(o, "pnetids"), i, x)
		printf("  pnetid     %s: %s%s%s\n", string_of(x, "name"), string_of(x, "net"),
		       *string_of(x, "net") && *string_of(x, "ib") ? ", " : "",
		       string_of(x, "ib"));
	json_array_foreach(json_object_get(o, "devices"), i, x)
		print_ports(x);
	json_array_foreach(json_object_get(o, "groups"), i, x)
		printf("  group      %s of %lld connections%s%s%s%s\n", string_of(x, "role"),
		       (long long)json_integer_value(json_object_get(x, "connections")),
		       *string_of(x, "peer") ? " with " : "", string_of(x, "peer"),
		       *string_of(x, "ueid") ? ", UEID " : "", string_of(x, "ueid"));
	if (json_object_get(o, "why"))
		printf("  unknown    %s\n", string_of(o, "why"));
	json_array_foreach(json_object_get(o, "missing"), i, x)
		printf("  missing    %s\n", json_string_value(x));
}

/* -- the command -------------------------------------------------------------------------- */

/* Does the kernel accept the name: upper case and digits, and not first, characters of `more`? */
static bool is_name(const char *s, size_t most, const char *more)
{
	static const char legal[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	size_t n = strspn(s, legal);

	while (n && s[n] && strchr(more, s[n]))
		n += 1 + strspn(s + n + 1, legal);
	return n && !s[n] && n <= most;
}

static int cmd_setup(int argc, char **argv)
{
	struct setup s = { .port = 1 };
	const struct opt rows[] = {
		{OPT_TEXT, "ueid", "NAME", "a UEID: the same on all hosts that are to meet",
		 &s.ueid, 0, 0},
		{OPT_TEXT, "pnetid", "NAME", "a physical network, of --net and of --ib", &s.pnetid,
		 0, 0},
		{OPT_TEXT, "net", "INTERFACE", "a network interface on it", &s.net, 0, 0},
		{OPT_TEXT, "ib", "DEVICE", "an RDMA device on it", &s.ib, 0, 0},
		{OPT_INT, "port", "N", "and its port (1)", &s.port, 1, 2},
		OPT_SUCH_AS("braid smc setup --ueid BRAID", "on both hosts, for SMC-Rv2"),
		OPT_SUCH_AS("braid smc setup --pnetid NET1 --net eth0 --ib mlx5_0",
			    "for a device whose driver does not name its interface"),
		{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
	};
	enum opt_end end;

	end = opt_parse("braid smc setup", "Add what SMC-R needs, until the next boot; for root.",
			rows, argc, argv);
	if (end != OPT_RUN)
		return end;
	if (!s.ueid && !s.pnetid)
		return opt_error("braid smc setup", "--ueid or --pnetid");
	if (s.ueid && !is_name(s.ueid, SMC_MAX_EID_LEN, ".-"))
		return opt_error("braid smc setup", "--ueid is up to 32 of A-Z, 0-9, . and -");
	if (s.pnetid && !is_name(s.pnetid, 16, ""))
		return opt_error("braid smc setup", "--pnetid is up to 16 of A-Z and 0-9");
	if (s.pnetid && !s.net && !s.ib)
		return opt_error("braid smc setup", "--pnetid is of --net, --ib or both");
	return set_up(&s);
}

int cmd_smc(int argc, char **argv)
{
	bool as_json = false;
	const struct opt rows[] = {
		{OPT_FLAG, "json", NULL, "as JSON", &as_json, 0, 0},
		OPT_SUCH_AS("braid smc", "devices, link groups, and what is missing"),
		{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
	};
	enum opt_end end;
	json_t *o;

	if (argc > 1 && !strcmp(argv[1], "setup"))
		return cmd_setup(argc - 1, argv + 1);
	end = opt_parse("braid smc", "What the kernel's SMC has and lacks; see also braid smc "
			"setup --help.", rows, argc, argv);
	if (end != OPT_RUN)
		return end;
	o = smc_json();
	if (as_json) {
		json_dumpf(o, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
		putchar('\n');
	} else {
		smc_print(o);
	}
	json_decref(o);
	return 0;
}
