//! The kernel's interface for BPF programs (linux/bpf.h, linux/if_packet.h): helpers, verdicts, and
//! offsets in contexts.
#![allow(missing_docs, reason = "the names are the kernel's")]

// enum bpf_func_id.
pub const MAP_LOOKUP: i32 = 1;
pub const MAP_UPDATE: i32 = 2;
pub const KTIME_GET_NS: i32 = 5;
pub const GET_PRANDOM_U32: i32 = 7;
pub const GET_SMP_PROCESSOR_ID: i32 = 8;
pub const TAIL_CALL: i32 = 12;
pub const REDIRECT: i32 = 23;
pub const SKB_LOAD_BYTES: i32 = 26;
pub const XDP_ADJUST_HEAD: i32 = 44;
pub const GET_SOCKET_COOKIE: i32 = 46;
pub const REDIRECT_MAP: i32 = 51;
pub const XDP_ADJUST_TAIL: i32 = 65;
pub const SKB_LOAD_BYTES_RELATIVE: i32 = 68;
pub const RINGBUF_OUTPUT: i32 = 130;
pub const XDP_GET_BUFF_LEN: i32 = 188;
pub const XDP_LOAD_BYTES: i32 = 189;
pub const XDP_STORE_BYTES: i32 = 190;

// enum bpf_hdr_start_off, for SKB_LOAD_BYTES_RELATIVE.
pub const START_MAC: i32 = 0;
pub const START_NETWORK: i32 = 1;

// Flag of RINGBUF_OUTPUT.
pub const RB_FORCE_WAKEUP: i32 = 2;

// enum xdp_action, enum tcx_action_base.
pub const XDP_ABORTED: i32 = 0;
pub const XDP_DROP: i32 = 1;
pub const XDP_PASS: i32 = 2;
pub const TCX_NEXT: i32 = -1;

// Values of `skb::PKT_TYPE`.
pub const PACKET_HOST: i32 = 0;
pub const PACKET_OUTGOING: i32 = 4;

/// Offsets of fields in `struct __sk_buff`. Each field has 32 bits.
pub mod skb {
    pub const LEN: i16 = 0;
    pub const PKT_TYPE: i16 = 4;
    pub const MARK: i16 = 8;
    pub const QUEUE_MAPPING: i16 = 12;
    pub const PROTOCOL: i16 = 16;
    pub const VLAN_PRESENT: i16 = 20;
    pub const VLAN_TCI: i16 = 24;
    pub const VLAN_PROTO: i16 = 28;
    pub const IFINDEX: i16 = 40;
    pub const HASH: i16 = 68;
}

/// Offsets of fields in `struct xdp_md`. Each field has 32 bits.
pub mod xdp {
    pub const DATA: i16 = 0;
    pub const DATA_END: i16 = 4;
    pub const INGRESS_IFINDEX: i16 = 12;
    pub const RX_QUEUE_INDEX: i16 = 16;
}
