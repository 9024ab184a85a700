/* Operations that open a handle. */
#ifndef opening_h
#define opening_h

#include "go.h"

/* Creates and activates a handle. If a handle could not join its group, activates it again. A
   handle that the system's library could not activate has no descriptor. The operation only
   closes such a handle, because another call on it crashes that library. */
static void open_handle(struct go *go)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p;

	arm(go->fault);
	p = pcap_create(device, errbuf);
	if (p != NULL) {
		pcap_set_timeout(p, TIMEOUT_MS);
		pcap_set_buffer_size(p, RING_BYTES);
		if (group >= 0)
			go->status = pcap_fanout(p, group, "lb");
		if (go->status == 0)
			go->status = pcap_activate(p);
	}
	disarm();
	if (p == NULL) {
		go->status = PCAP_ERROR;
		keep_message(go, errbuf);
		return;
	}
	keep_message(go, pcap_geterr(p));
	if (go->status < 0 && pcap_fileno(p) >= 0 && pcap_activate(p) < 0)
		wrong(go, "not-activated-again");
	else if (pcap_fileno(p) >= 0)
		check_works(go, p);
	pcap_close(p);
}

/* Opens a handle by pcap_open_live(). The environment sets the handle's group. */
static void open_live(struct go *go)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p;

	arm(go->fault);
	p = pcap_open_live(device, 65535, 0, TIMEOUT_MS, errbuf);
	disarm();
	keep_message(go, errbuf);
	if (p == NULL) {
		go->status = PCAP_ERROR;
		return;
	}
	check_works(go, p);
	pcap_close(p);
}

/* Creates a handle and never activates it. */
static void create_only(struct go *go)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p;

	arm(go->fault);
	p = pcap_create(device, errbuf);
	disarm();
	go->status = p != NULL ? 0 : PCAP_ERROR;
	keep_message(go, errbuf);
	if (p != NULL)
		pcap_close(p);
}

/* Makes the first call of a process, which loads the system's library. */
static void load(struct go *go)
{
	char errbuf[PCAP_ERRBUF_SIZE] = "";
	pcap_t *p;

	arm(go->fault);
	(void)pcap_lib_version();
	disarm();
	p = pcap_create(device, errbuf);
	if (p == NULL) {
		wrong(go, "stays-unloaded");
		keep_message(go, errbuf);
		return;
	}
	pcap_set_timeout(p, TIMEOUT_MS);
	if (pcap_activate(p) < 0)
		give_up("pcap_activate", pcap_geterr(p));
	check_works(go, p);
	pcap_close(p);
}

static void join_late(struct go *go)
{
	pcap_t *p = created();

	if (pcap_activate(p) < 0)
		give_up("pcap_activate", pcap_geterr(p));
	arm(go->fault);
	go->status = pcap_fanout(p, group, "lb");
	disarm();
	keep_message(go, pcap_geterr(p));
	if (go->status < 0 && pcap_fanout(p, group, "lb") != 0)
		wrong(go, "does-not-join-again");
	else
		check_works(go, p);
	pcap_close(p);
}

#endif
