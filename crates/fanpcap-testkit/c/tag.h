/* For stand-ins on packet sockets: puts back the VLAN tag that the kernel takes out of a packet. */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <string.h>
#include <sys/socket.h>

enum { TAG = 4, ADDRESSES = 12 };

/* Makes the kernel say which tag it has taken out. */
static inline int ask_for_tags(int fd) {
  int on = 1;
  return setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on);
}

/* Puts the tag back into a packet of which `captured` bytes are at `data`, with
   room for the tag after them. Returns the bytes of the tag; 0 without one. */
static inline long put_tag_back(struct msghdr *message, unsigned char *data, long captured) {
  for (struct cmsghdr *it = CMSG_FIRSTHDR(message); it; it = CMSG_NXTHDR(message, it)) {
    if (it->cmsg_level != SOL_PACKET || it->cmsg_type != PACKET_AUXDATA)
      continue;
    struct tpacket_auxdata beside;
    memcpy(&beside, CMSG_DATA(it), sizeof beside);
    if (!(beside.tp_status & TP_STATUS_VLAN_VALID))
      return 0;
    if (captured < ADDRESSES)
      return TAG;
    int has_type = beside.tp_status & TP_STATUS_VLAN_TPID_VALID;
    uint16_t tag[2] = {htons(has_type ? beside.tp_vlan_tpid : ETH_P_8021Q),
                       htons(beside.tp_vlan_tci)};
    memmove(data + ADDRESSES + TAG, data + ADDRESSES, (size_t)(captured - ADDRESSES));
    memcpy(data + ADDRESSES, tag, TAG);
    return TAG;
  }
  return 0;
}
