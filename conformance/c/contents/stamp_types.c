/* Time stamp types and precisions: lists, names, and the values that a handle accepts. */
#include "../wire.h"

static void list(const char *device)
{
	int *types = NULL;
	pcap_t *p = created(device, 3);
	int count = pcap_list_tstamp_types(p, &types);
	printf("%s: %d types:", device, count);
	for (int i = 0; i < count; i++)
		printf(" %d", types[i]);
	printf("\n");
	pcap_free_tstamp_types(types);
	for (int type = -2; type <= 6; type++) {
		int rc = pcap_set_tstamp_type(p, type);
		printf("  set %d: %d [%s]\n", type, rc, pcap_geterr(p));
	}
	for (int precision = -1; precision <= 2; precision++) {
		int rc = pcap_set_tstamp_precision(p, precision);
		printf("  precision %d: %d, %d [%s]\n", precision, rc, pcap_get_tstamp_precision(p), pcap_geterr(p));
	}
	pcap_close(p);
}

static void activate_with(const char *device, int type)
{
	pcap_t *p = created(device, 3);
	int rc = pcap_set_tstamp_type(p, type);
	int activation = pcap_activate(p);
	printf("%s with type %d: %d, activation %d [%s]\n", device, type, rc, activation, pcap_geterr(p));
	pcap_close(p);
}

int main(void)
{
	list(far);
	list("lo");
	list("any");
	list("nodevice0");
	for (int type = 0; type <= 5; type++) {
		activate_with(far, type);
		activate_with("any", type);
	}
	for (int type = -1; type <= 6; type++) {
		const char *name = pcap_tstamp_type_val_to_name(type);
		const char *description = pcap_tstamp_type_val_to_description(type);
		printf("%d is %s, %s, %d\n", type, name ? name : "none", description ? description : "none",
		       name ? pcap_tstamp_type_name_to_val(name) : -100);
	}
	printf("%d\n", pcap_tstamp_type_name_to_val("nosuch"));
	return 0;
}
