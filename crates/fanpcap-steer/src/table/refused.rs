//! Functions of PFQ that this language does not have, with the reasons.

/// Functions of PFQ that are refused for one reason.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// Names of the functions.
    pub names: &'static [&'static str],
    /// The reason why the language does not have these functions.
    pub reason: &'static str,
    /// Advice: what to write in this language instead.
    pub instead: &'static str,
}

/// All refused functions.
pub static REFUSED: [Refused; 8] = [
    Refused {
        names: &["forward", "forwardIO", "bridge", "link", "tee", "tap"],
        reason: "it transmits, and a steering program only selects who receives",
        instead: "leave it out; transmit with pcap_inject() in the application",
    },
    Refused {
        names: &["log_msg", "log_buff", "log_packet", "trace"],
        reason: "it writes to the kernel's log, once for each packet",
        instead: "count with 'inc 0', or test a savefile with fanpcap lang try",
    },
    Refused {
        names: &["is_ip_host", "is_incoming_host", "ip_host", "incoming_host"],
        reason: "it asks for the interface's own addresses, which a steering program can't read",
        instead: "write the addresses: 'has_dst_addr \"192.0.2.1\"'",
    },
    Refused {
        names: &[
            "dummy_int",
            "dummy_ints",
            "dummy_ip",
            "dummy_ips",
            "dummy_string",
            "dummy_strings",
            "dummy_cidr",
            "dummy_cidrs",
        ],
        reason: "it does nothing; it serves PFQ's own tests",
        instead: "leave it out",
    },
    Refused {
        names: &["bloomCalcN", "bloomCalcM", "bloomCalcP"],
        reason: "it computes the size of a probabilistic filter; sets of this language are exact",
        instead: "write any number as the size",
    },
    Refused {
        names: &["dispatch", "deliver"],
        reason: "PFQ has replaced it",
        instead: "write 'classify n', and a steering function after it",
    },
    Refused {
        names: &["return", "fmap", "pure", "mempty", "mappend"],
        reason: "functions of this language have no results",
        instead: "write 'unit' for a function that does nothing",
    },
    Refused {
        names: &[
            "class_default",
            "class_user_plane",
            "class_control_plane",
            "class_control",
            "class_any",
        ],
        reason: "it is a set of classes, and 'classify' takes the number of one class",
        instead: "write 'classify n' with a number from 1 to 63",
    },
];

/// The entry of [`REFUSED`] that includes this name, if there is one.
pub(crate) fn find(name: &str) -> Option<&'static Refused> {
    REFUSED.iter().find(|refused| refused.names.contains(&name))
}
