//! What not every analyzer counts: removed and compressed files, exports, DiCAP's datagrams.

use fanpcap_terminal::exposition::Kind;

/// A count of its own name in the status, in JSON and among the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Figure {
    RemovedFiles,
    RemovedBytes,
    CompressedFiles,
    CompressedSaved,
    Exported,
    ExportLost,
    ExportSkipped,
    DicapHeaders,
    DicapRefused,
    DicapDropped,
    DicapMissing,
}

impl Figure {
    #[cfg(test)]
    pub(super) const ALL: [Self; 11] = [
        Self::RemovedFiles,
        Self::RemovedBytes,
        Self::CompressedFiles,
        Self::CompressedSaved,
        Self::Exported,
        Self::ExportLost,
        Self::ExportSkipped,
        Self::DicapHeaders,
        Self::DicapRefused,
        Self::DicapDropped,
        Self::DicapMissing,
    ];

    /// Its key in JSON. A line has spaces in place of the underscores.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::RemovedFiles => "removed_files",
            Self::RemovedBytes => "removed_bytes",
            Self::CompressedFiles => "compressed_files",
            Self::CompressedSaved => "compressed_saved_bytes",
            Self::Exported => "exported_packets",
            Self::ExportLost => "export_lost_messages",
            Self::ExportSkipped => "export_skipped_packets",
            Self::DicapHeaders => "dicap_headers",
            Self::DicapRefused => "dicap_refused",
            Self::DicapDropped => "dicap_dropped",
            Self::DicapMissing => "dicap_missing",
        }
    }

    /// Its metric: the name, what it counts, its type.
    pub(super) const fn metric(self) -> (&'static str, &'static str, Kind) {
        match self {
            Self::RemovedFiles => (
                "fanpcap_analyzer_removed_files_total",
                "Old files that were removed to keep to the limits.",
                Kind::Counter,
            ),
            Self::RemovedBytes => (
                "fanpcap_analyzer_removed_bytes_total",
                "Bytes of the old files that were removed.",
                Kind::Counter,
            ),
            Self::CompressedFiles => (
                "fanpcap_analyzer_compressed_files_total",
                "Files that were compressed.",
                Kind::Counter,
            ),
            Self::CompressedSaved => (
                "fanpcap_analyzer_compressed_saved_bytes_total",
                "Bytes by which the compressed files are smaller.",
                Kind::Counter,
            ),
            Self::Exported => (
                "fanpcap_analyzer_exported_packets_total",
                "Packets that were handed to collectors, once for each of them.",
                Kind::Counter,
            ),
            Self::ExportLost => (
                "fanpcap_analyzer_unexported_messages_total",
                "Messages that a collector did not get.",
                Kind::Counter,
            ),
            Self::ExportSkipped => (
                "fanpcap_analyzer_unexported_packets_total",
                "Packets that the export was too slow for, or that no collector could take.",
                Kind::Counter,
            ),
            Self::DicapHeaders => (
                "fanpcap_analyzer_dicap_headers_total",
                "Headers that came in the datagrams of DiCAP.",
                Kind::Counter,
            ),
            Self::DicapRefused => (
                "fanpcap_analyzer_dicap_refused_datagrams_total",
                "Datagrams that are none of DiCAP's, or that come from an address of no node.",
                Kind::Counter,
            ),
            Self::DicapDropped => (
                "fanpcap_analyzer_dicap_dropped_headers_total",
                "Headers of datagrams that the analyzer was too slow for.",
                Kind::Counter,
            ),
            Self::DicapMissing => (
                "fanpcap_analyzer_dicap_missing_headers",
                "Packets that nodes have captured, less the headers that came.",
                Kind::Gauge,
            ),
        }
    }
}
