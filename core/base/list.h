/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h - an intrusive, circular, doubly linked list. */
#ifndef BRAID_BASE_LIST_H
#define BRAID_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/os.h"

struct braid_list {
	struct braid_list *next, *prev;
};

static inline void braid_list_init(struct braid_list *l)
{
	l->next = l->prev = l;
}

static inline bool braid_list_empty(const struct braid_list *l)
{
	return l->next == l;
}

static inline void braid_list_add_tail(struct braid_list *head, struct braid_list *n)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}

/* Does nothing to an initialised node that is in no list. */
static inline void braid_list_del(struct braid_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	braid_list_init(n);
}

#define braid_list_entry(ptr, type, member) braid_container(ptr, type, member)

#define braid_list_for(pos, head, member)						\
	for (pos = braid_list_entry((head)->next, __typeof__(*pos), member);		\
	     &pos->member != (head);							\
	     pos = braid_list_entry(pos->member.next, __typeof__(*pos), member))

#define braid_list_for_safe(pos, tmp, head, member)					\
	for (pos = braid_list_entry((head)->next, __typeof__(*pos), member),		\
	    tmp = braid_list_entry(pos->member.next, __typeof__(*pos), member);		\
	     &pos->member != (head);							\
	     pos = tmp, tmp = braid_list_entry(pos->member.next, __typeof__(*pos), member))

#endif
