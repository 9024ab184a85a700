//! Counters of features that not every analyzer uses: removed and compressed files, exports, DiCAP.

use fanpcap_terminal::exposition::Kind;

/// A counter with its name in the status and in JSON, and its metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ExtraCounter {
    /// The counter's key in JSON. The status line has spaces in place of the underscores.
    pub(super) name: &'static str,
    pub(super) metric: &'static str,
    /// What the counter counts.
    pub(super) help: &'static str,
    pub(super) kind: Kind,
}

const fn counter(name: &'static str, metric: &'static str, help: &'static str) -> ExtraCounter {
    let kind = Kind::Counter;
    ExtraCounter {
        name,
        metric,
        help,
        kind,
    }
}

pub(super) const REMOVED_FILES: ExtraCounter = counter(
    "removed_files",
    "fanpcap_analyzer_removed_files_total",
    "Old files that --keep, --keep-size or --keep-free removed.",
);
pub(super) const REMOVED_BYTES: ExtraCounter = counter(
    "removed_bytes",
    "fanpcap_analyzer_removed_bytes_total",
    "Bytes of the old files that were removed.",
);
pub(super) const COMPRESSED_FILES: ExtraCounter = counter(
    "compressed_files",
    "fanpcap_analyzer_compressed_files_total",
    "Files that were compressed.",
);
pub(super) const COMPRESSED_SAVED: ExtraCounter = counter(
    "compressed_saved_bytes",
    "fanpcap_analyzer_compressed_saved_bytes_total",
    "Bytes by which the compressed files are smaller.",
);
pub(super) const EXPORTED: ExtraCounter = counter(
    "exported_packets",
    "fanpcap_analyzer_exported_packets_total",
    "Packets that were handed to collectors, once for each collector.",
);
pub(super) const EXPORT_LEFT_OUT: ExtraCounter = counter(
    "export_left_out_packets",
    "fanpcap_analyzer_export_left_out_packets_total",
    "Packets that a flow can't describe, because they are not IP.",
);
pub(super) const EXPORT_CUT: ExtraCounter = counter(
    "export_cut_packets",
    "fanpcap_analyzer_export_cut_packets_total",
    "Packets that were shortened to fit into a message.",
);
pub(super) const EXPORT_LOST: ExtraCounter = counter(
    "export_lost_messages",
    "fanpcap_analyzer_unexported_messages_total",
    "Messages that a collector did not get.",
);
pub(super) const EXPORT_SKIPPED: ExtraCounter = counter(
    "export_skipped_packets",
    "fanpcap_analyzer_unexported_packets_total",
    "Packets that the export was too slow for, or that no collector could take.",
);
pub(super) const DICAP_HEADERS: ExtraCounter = counter(
    "dicap_headers",
    "fanpcap_analyzer_dicap_headers_total",
    "Headers that came in the datagrams of DiCAP.",
);
pub(super) const DICAP_REFUSED: ExtraCounter = counter(
    "dicap_refused",
    "fanpcap_analyzer_dicap_refused_datagrams_total",
    "Datagrams that do not have DiCAP's format, or whose sender's address is not a node's.",
);
pub(super) const DICAP_DROPPED: ExtraCounter = counter(
    "dicap_dropped",
    "fanpcap_analyzer_dicap_dropped_headers_total",
    "Headers of datagrams that the analyzer was too slow for.",
);
pub(super) const DICAP_MISSING: ExtraCounter = ExtraCounter {
    kind: Kind::Gauge,
    ..counter(
        "dicap_missing",
        "fanpcap_analyzer_dicap_missing_headers",
        "Packets that nodes have captured, minus the headers that came.",
    )
};
