/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * draw.c - the machine as NCCL's topology XML, and as a picture.
 *
 * NCCL's tree has a <cpu> for each NUMA node, a <pci> for each switch and a <pci> for each device.
 * NCCL skips root ports and the downstream ports of switches, which are every other level in /sys,
 * and so do we.  NCCL prefers the file to what it finds out, so facts that the driver or the
 * plugin knows better (a GPU's sm, a NIC's speed, port and guid) are left out.  It takes a NIC's
 * pci and cpu elements from the file alone, so these are complete.  A value may have 253 letters.
 */
#include "tools/topo/topo.h"

#include <stdio.h>
#include <stdlib.h>

enum { ATTR = 64, VALUE_MOST = 253 };
enum { LEAF_W = 112, LEAF_H = 46, LEVEL_H = 64, GAP = 12, MARGIN = 16 };	/* of the picture */

/* For attributes and text alike; characters that XML can't have become question marks. */
static void put_escaped(FILE *to, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '&')
			fputs("&amp;", to);
		else if (c == '<')
			fputs("&lt;", to);
		else if (c == '>')
			fputs("&gt;", to);
		else if (c == '"')
			fputs("&quot;", to);
		else
			fputc(c < ' ' || c > '~' ? '?' : c, to);
	}
}

static void put_attr(const char *name, const char *value)
{
	printf(" %s=\"", name);
	put_escaped(stdout, value);
	putchar('"');
}

static void indent(unsigned depth)
{
	printf("%*s", 2 * (int)depth, "");
}

/* -- NCCL's XML --------------------------------------------------------------------------- */

static bool is_listed(const struct braid_machine *m, int spot)
{
	const struct braid_spot *s = &m->spots[spot];

	return s->gpu || s->nic || (s->depth > 0 && s->depth % 2 == 0);
}

/* The nearest spot above that is in NCCL's tree; -1: none, it is below the CPU. */
static int listed_above(const struct braid_machine *m, int spot)
{
	do
		spot = m->spots[spot].up;
	while (spot >= 0 && !is_listed(m, spot));
	return spot;
}

static void put_hex(const char *name, int digits, unsigned value)
{
	printf(" %s=\"0x%0*x\"", name, digits, value);
}

/* The lesser of those that are known: 0 is unknown. */
static double lesser(double a, double b)
{
	if (a <= 0 || b <= 0)
		return a > b ? a : b;
	return a < b ? a : b;
}

/* A link is as fast and as wide as the slower and narrower of its ends. */
static void put_link(const struct braid_machine *m, int spot)
{
	struct braid_link above = m->spots[m->spots[spot].up].most, link = m->spots[spot].most;
	char speed[ATTR] = "", width[ATTR] = "";

	link.gts = lesser(above.gts, link.gts);
	link.width = (unsigned)lesser(above.width, link.width);
	if (link.gts > 0)
		snprintf(speed, sizeof(speed), "%.1f GT/s PCIe", link.gts);
	if (link.width)
		snprintf(width, sizeof(width), "%u", link.width);
	put_attr("link_speed", speed);
	put_attr("link_width", width);
}

static void put_gpu(const struct braid_machine *m, int spot, unsigned depth)
{
	for (unsigned i = 0; i < m->n_gpus; i++) {
		if (m->gpus[i].spot != spot)
			continue;
		indent(depth);
		printf("<gpu dev=\"%u\"/>\n", i);
	}
}

static void put_net(const struct braid_machine *m, unsigned i, unsigned depth)
{
	indent(depth);
	printf("<net");
	put_attr("name", m->nics[i].name);
	printf(" dev=\"%u\"/>\n", i);
}

/* A bond is where its first member is, as its pciPath says. */
static void put_nets(const struct braid_machine *m, int spot, unsigned depth)
{
	bool open = false;

	for (unsigned i = 0; i < m->n_nics; i++) {
		if (!m->nics[i].n_spots || m->nics[i].spots[0] != spot)
			continue;
		if (!open) {
			indent(depth);
			puts("<nic>");
		}
		open = true;
		put_net(m, i, depth + 1);
	}
	if (open) {
		indent(depth);
		puts("</nic>");
	}
}

static void put_pci(const struct braid_machine *m, int spot, unsigned depth)
{
	const struct braid_spot *s = &m->spots[spot];

	indent(depth);
	printf("<pci");
	put_attr("busid", s->name);
	put_hex("class", 6, s->class ? s->class : s->nic ? 0x020000 : 0x060400);
	put_hex("vendor", 4, s->vendor);
	put_hex("device", 4, s->device);
	put_hex("subsystem_vendor", 4, s->sub_vendor);
	put_hex("subsystem_device", 4, s->sub_device);
	put_link(m, spot);
	puts(">");
	put_gpu(m, spot, depth + 1);
	put_nets(m, spot, depth + 1);
	for (unsigned i = 0; i < m->n_spots; i++) {
		if (m->spots[i].depth && is_listed(m, (int)i) && listed_above(m, (int)i) == spot)
			put_pci(m, (int)i, depth + 1);
	}
	indent(depth);
	puts("</pci>");
}

/* "0000ffff,00000000": 32 CPUs a word, the highest first, as the kernel writes masks. */
static void put_mask(const struct braid_cpus *c)
{
	int word = BRAID_CPUS_MAX / 32 - 1;

	while (word > 0 && !(uint32_t)(c->bits[word / 2] >> (word % 2 * 32)))
		word--;
	if (9 * (word + 1) > VALUE_MOST)
		return;
	printf(" affinity=\"");
	for (int i = word; i >= 0; i--)
		printf("%s%08x", i < word ? "," : "",
		       (unsigned)(uint32_t)(c->bits[i / 2] >> (i % 2 * 32)));
	putchar('"');
}

/* NCCL counts an extended family, 0xf + x, as 0xf + 16 x. */
static void put_cpu_kind(const struct braid_cpu_kind *cpu)
{
	put_attr("arch", cpu->arch);
	if (!*cpu->vendor)
		return;
	put_attr("vendor", cpu->vendor);
	if (cpu->family >= 0)
		printf(" familyid=\"%d\"",
		       cpu->family > 15 ? 15 + 16 * (cpu->family - 15) : cpu->family);
	if (cpu->model >= 0)
		printf(" modelid=\"%d\"", cpu->model);
}

/* Print a NUMA node and its listed spots; print nothing if it has none. */
static void put_cpu(const struct braid_machine *m, int numa, const struct braid_cpus *cpus)
{
	bool open = false;

	for (unsigned i = 0; i < m->n_spots; i++) {
		if (!m->spots[i].depth || m->spots[i].numa != numa || !is_listed(m, (int)i) ||
		    listed_above(m, (int)i) >= 0)
			continue;
		if (!open) {
			printf("  <cpu numaid=\"%d\"", numa);
			if (cpus)
				put_mask(cpus);
			put_cpu_kind(&m->cpu);
			puts(">");
		}
		open = true;
		put_pci(m, (int)i, 2);
	}
	if (open)
		puts("  </cpu>");
}

void topo_xml(const struct braid_machine *m)
{
	bool known[4096] = { false };

	puts("<system version=\"1\">");
	for (unsigned i = 0; i < m->n_numas; i++) {
		put_cpu(m, m->numas[i].id, &m->numas[i].cpus);
		if (m->numas[i].id < 4096)
			known[m->numas[i].id] = true;
	}
	/* Devices may name nodes that the machine does not have, or none. */
	put_cpu(m, -1, NULL);
	for (int id = 0; id < 4096; id++) {
		if (!known[id])
			put_cpu(m, id, NULL);
	}
	puts("</system>");
}

/* -- the picture -------------------------------------------------------------------------- */

/*
 * A spot with nothing below is as wide as a box, any other as wide as all that is below it.
 * Children are from left to right in the order of the tree.
 */
struct picture {
	const struct braid_machine *m;
	int *x;				/* the middle of each spot */
	unsigned deepest;
};

static void put_box(FILE *to, int x, int y, int width, const char *fill, const char *title,
		    const char *text)
{
	fprintf(to, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\" "
	       "stroke=\"#555\"/>\n", x - width / 2, y, width, LEAF_H, fill);
	fprintf(to, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" font-weight=\"bold\">", x,
		y + 19);
	put_escaped(to, title);
	fputs("</text>\n", to);
	fprintf(to, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#444\">", x, y + 36);
	put_escaped(to, text);
	fputs("</text>\n", to);
}

static void put_line(FILE *to, int x1, int y1, int x2, int y2)
{
	fprintf(to, "<path d=\"M%d %dV%dH%dV%d\" fill=\"none\" stroke=\"#777\"/>\n", x1, y1,
	       (y1 + y2) / 2, x2, y2);
}

static int spot_y(unsigned depth)
{
	return MARGIN + 24 + (int)depth * (LEAF_H + LEVEL_H / 2);
}

/* Lay out what is below `spot` from `left` on; returns where it ends. */
static int lay_out(struct picture *p, int spot, int left)
{
	const struct braid_machine *m = p->m;
	int at = left;

	if (m->spots[spot].depth > p->deepest)
		p->deepest = m->spots[spot].depth;
	for (unsigned i = (unsigned)spot + 1; i < m->n_spots; i++) {
		if (m->spots[i].up == spot)
			at = lay_out(p, (int)i, at);
	}
	if (at == left)
		at += LEAF_W + GAP;
	p->x[spot] = left + (at - left - GAP) / 2;
	return at;
}

/* "NIC0 NIC1" in title, the name of the first in text. */
static void nic_label(const struct braid_machine *m, int spot, char *title, char *text)
{
	size_t used = 0;

	title[0] = text[0] = '\0';
	for (unsigned i = 0; i < m->n_nics && used + 16 < ATTR; i++) {
		const struct braid_nic *nic = &m->nics[i];
		bool on = false;

		for (unsigned k = 0; k < nic->n_spots; k++)
			on |= nic->spots[k] == spot;
		if (!on)
			continue;
		if (!used)
			snprintf(text, ATTR, "%.15s", nic->name);
		used += (size_t)snprintf(title + used, ATTR - used, "%sNIC%u", used ? " " : "", i);
	}
}

static void put_spot(FILE *to, const struct picture *p, int spot)
{
	const struct braid_machine *m = p->m;
	const struct braid_spot *s = &m->spots[spot];
	char title[ATTR], text[ATTR];
	int y = spot_y(s->depth);

	if (s->up >= 0)
		put_line(to, p->x[s->up], spot_y(s->depth - 1) + LEAF_H, p->x[spot], y);
	if (s->gpu) {
		for (unsigned i = 0; i < m->n_gpus; i++) {
			if (m->gpus[i].spot == spot)
				snprintf(title, sizeof(title), "GPU%u", i);
		}
		put_box(to, p->x[spot], y, LEAF_W, "#cfe8c0", title, s->name);
	} else if (s->nic) {
		nic_label(m, spot, title, text);
		put_box(to, p->x[spot], y, LEAF_W, "#c9dcf2", title, text);
	} else if (s->depth) {
		put_box(to, p->x[spot], y, LEAF_W, "#eeeeee", s->depth % 2 ? "port" : "switch",
			s->name);
	} else {
		if (s->numa >= 0)
			snprintf(title, sizeof(title), "NUMA node %d", s->numa);
		else
			snprintf(title, sizeof(title), "host bridge");
		put_box(to, p->x[spot], y, LEAF_W, "#f3dfb8", title, s->name);
	}
}

void topo_svg(const struct braid_machine *m, FILE *to)
{
	struct picture p = { .m = m, .x = calloc(m->n_spots + 1, sizeof(int)) };
	int width = MARGIN, height;

	if (!p.x)
		return;
	for (unsigned i = 0; i < m->n_spots; i++) {
		if (m->spots[i].up < 0)
			width = lay_out(&p, (int)i, width);
	}
	if (width < 480)
		width = 480;
	height = spot_y(p.deepest) + LEAF_H + MARGIN + 16 * ((int)m->n_notes + 1);
	fprintf(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
	       "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n",
	       width + MARGIN, height, width + MARGIN, height);
	fputs("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n", to);
	fprintf(to, "<text x=\"%d\" y=\"%d\" font-size=\"14\">%u GPUs, %u NICs</text>\n", MARGIN,
	       MARGIN + 8, m->n_gpus, m->n_nics);
	for (unsigned i = 0; i < m->n_spots; i++)
		put_spot(to, &p, (int)i);
	for (unsigned i = 0; i < m->n_notes; i++) {
		fprintf(to, "<text x=\"%d\" y=\"%d\">Note: ", MARGIN, height - 16 * (int)i - 8);
		put_escaped(to, m->notes[i]);
		fputs(".</text>\n", to);
	}
	fputs("</svg>\n", to);
	free(p.x);
}
